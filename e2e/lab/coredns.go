package lab

import (
	"context"
	_ "embed"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

//go:embed coredns.yaml
var corednsManifests string

// ApplyCoreDNS gives a cluster of this tier its DNS and returns when it answers. The
// first call on a machine builds CoreDNS. A node added later needs it again, should
// CoreDNS move there.
func (f *Full) ApplyCoreDNS(ctx context.Context, c *Cluster) error {
	archive, err := buildToolImage(ctx, f.lab, toolImage{tool: "coredns", name: CoreDNSImage})
	if err != nil {
		return err
	}
	if err := f.LoadImage(ctx, c, archive); err != nil {
		return err
	}
	address, err := dnsAddress(c.Options.ServiceCIDRs()[0])
	if err != nil {
		return err
	}
	if err := c.Apply(ctx, fmt.Appendf(nil, corednsManifests, CoreDNSImage, address)); err != nil {
		return err
	}
	err = Eventually(ctx, func(ctx context.Context) error {
		deployment, err := c.Client().AppsV1().Deployments(metav1.NamespaceSystem).Get(ctx, "coredns", metav1.GetOptions{})
		return Wrong(err, deployment.Status.ReadyReplicas == 0 || deployment.Status.ObservedGeneration < deployment.Generation, "coredns is not ready: %+v", deployment.Status.Conditions)
	})
	if err != nil {
		return fmt.Errorf("waiting for DNS in cluster %s: %w", c.Name, err)
	}
	return nil
}
