package lab

import (
	"context"
	"fmt"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AddAPIServer starts another API server of a cluster, on the machine of the first and with an
// address of its own, and returns when Service kubernetes has both. All kubeconfigs are for the
// first.
func (f *Full) AddAPIServer(ctx context.Context, c *Cluster) (*Process, error) {
	name := c.Name + "-api-2"
	at, _, err := f.network.reserve(name)
	if err != nil {
		return nil, err
	}
	if err := ipBatch(ctx, c.Options.Netns, f.network.assign(at, "eth0")...); err != nil {
		return nil, err
	}
	address := at.AddressFor(c.Options.PodCIDR)
	service, err := firstAddress(c.Options.ServiceCIDRs()[0])
	if err != nil {
		return nil, err
	}
	files := c.path("pki", "apiserver-2")
	err = c.authority.IssueFiles(files, CertificateRequest{CommonName: "kube-apiserver", Hosts: []string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", service, address}})
	if err != nil {
		return nil, err
	}
	args := append([]string{APIServer}, c.plane.args[APIServer]...)
	for flag, value := range map[string]string{
		"--bind-address": address, "--advertise-address": address, "--tls-cert-file": files + ".crt", "--tls-private-key-file": files + ".key",
	} {
		i := slices.Index(args, flag)
		if i < 0 {
			return nil, fmt.Errorf("the API server of cluster %s has no flag %s", c.Name, flag)
		}
		args[i+1] = value
	}
	p, err := c.lab.Process(ProcessOptions{Name: c.Name + "/" + name, Path: c.kubelab, Args: args, Dir: c.Dir, Netns: c.Options.Netns, Env: c.lab.opts.PlaneEnv})
	if err != nil {
		return nil, err
	}
	return p, Within(ctx, 2*time.Minute, Those(c.client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=kubernetes"}, func(list *discoveryv1.EndpointSliceList) error {
		for _, s := range list.Items {
			for _, e := range s.Endpoints {
				if slices.Contains(e.Addresses, address) {
					return nil
				}
			}
		}
		return fmt.Errorf("the Service kubernetes does not have %s", address)
	}))
}
