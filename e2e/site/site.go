// Package site puts liqod on the lab's clusters and connects them, as the documents
// tell people to: by the chart, and by docs/peering.md#connecting-two-clusters-by-hand. In the full tier the roles
// run as pods of the real image; in the simulated tier they are processes with tokens of
// the chart's service accounts, and so may those of the network be in the full one. They
// never have an administrator's rights.
package site

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
)

const (
	// Namespace that liqod is installed in.
	Namespace  = "liqod"
	imageTag   = "lab"
	peerUser   = "peer-1"
	loopback   = "127.0.0.1"
	configName = "config.yaml"

	imageRepository = "liqod.io/liqod"

	authNodePort = 30843 // of the authentication in the full tier
)

// Site is a cluster with liqod on it.
type Site struct {
	*lab.Cluster
	// Controller and Webhook are the processes of the simulated tier; nil in the full one.
	Controller, Webhook *lab.Process
	// AuthURL is where other clusters get identities. In the simulated tier grants lead
	// through the front of the API server unless Direct.
	AuthURL string
	// Fabric of the site, if it consists of processes.
	Fabric *Fabric

	sites *Sites
	chart map[string]any // values with which it was installed

	version Version // that is installed

	mu        sync.Mutex
	vkubelets map[string]**lab.Process
}

// Sites makes sites in one lab.
type Sites struct {
	Lab *lab.Lab
	// Full is the full tier; nil in the simulated one.
	Full *lab.Full
	// Settings are added to the chart's `config` value: settings of config.yaml.
	Settings map[string]any
	// Values are more values of the chart. Who installs sets discovery, image, config and, in
	// the full tier, authentication: those are not for here.
	Values map[string]any
	// Fabric says how the roles of the network run, which connect the pods of clusters with
	// equal ranges. Only with real nodes.
	Fabric FabricMode
	// Families of a Fabric. Empty: IPv4.
	Families Families
	// Direct leads the processes of the simulated tier past the fronts of the API servers,
	// which cannot be made to fail for them then, and cost no time.
	Direct bool
	// Certificates gives peers certificates, as the chart does by default, instead of tokens
	// of ServiceAccounts. It needs Direct.
	Certificates bool

	// Installs is the version that Install installs; New sets it to Tree, the one of this tree.
	Installs, Tree Version

	root, binary string
}

// New builds liqod for a lab: its binary, and in the full tier its image.
func New(ctx context.Context, l *lab.Lab, full *lab.Full) (*Sites, error) {
	s := &Sites{Lab: l, Full: full, binary: filepath.Join(l.Dir(), "liqod")}
	root, err := repository(ctx)
	if err != nil {
		return nil, err
	}
	s.root = root
	if err := lab.BuildLiqod(ctx, root, s.binary); err != nil {
		return nil, err
	}
	s.Tree = Version{Tag: imageTag, root: root, binary: s.binary}
	if err := s.pack(ctx, &s.Tree); err != nil {
		return nil, err
	}
	s.Installs = s.Tree
	return s, nil
}

// pack makes the image of a version, which the full tier runs.
func (s *Sites) pack(ctx context.Context, v *Version) error {
	if s.Full == nil {
		return nil
	}
	v.image = v.binary + "-image.tar"
	if err := run(ctx, s.root, "go", "run", "./hack", "image", "-binary", v.binary, "-name", imageRepository+":"+v.Tag, "-out", v.image); err != nil {
		return fmt.Errorf("making the image of %s: %w", v.Tag, err)
	}
	return nil
}

// Command is liqod as a person runs it, who has no kubeconfig but the one that is named.
func (s *Sites) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.binary, args...)
	cmd.Env = []string{"HOME=" + s.Lab.Dir(), "PATH=" + os.Getenv("PATH")}
	return cmd
}

func repository(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/liqod/liqod").Output()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}

// Install puts liqod on a cluster, whose name becomes its id.
func (s *Sites) Install(ctx context.Context, c *lab.Cluster) (*Site, error) {
	site := &Site{Cluster: c, sites: s, version: s.Installs, vkubelets: map[string]**lab.Process{}}
	if s.Full != nil {
		return site, site.installFull(ctx)
	}
	return site, site.installSimulated(ctx)
}

func (s *Site) values(more map[string]any) map[string]any {
	settings := map[string]any{
		// Take-over and node loss within seconds, as the lab's control planes are set.
		"lease":    map[string]any{"duration": "4s", "renewDeadline": "3s", "retryPeriod": "1s"},
		"vkubelet": map[string]any{"nodeLeaseDuration": "4s"},
		"log":      map[string]any{"level": "debug"},
	}
	if s.sites.Full == nil {
		settings["webhook"] = map[string]any{"hosts": []string{loopback}, "drain": "0s"} // no Service leads to it
		// All peers have one address, of the loopback device.
		settings["authentication"] = map[string]any{
			"requestsPerAddress": 6000, "requestsPerMinute": 6000,
			"acceptRanges": []string{"127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"},
		}
	}
	merge(settings, s.sites.Settings)
	values := map[string]any{
		"discovery": map[string]any{"config": map[string]any{"clusterID": s.Name}},
		"image":     map[string]any{"repository": imageRepository, "tag": s.version.Tag, "pullPolicy": "Never"},
		"config":    settings,
		// The chart has it on, and simulated nodes have no hosts for it.
		"networking": map[string]any{"enabled": false},
	}
	if s.sites.Fabric != FabricOff {
		values["networking"] = s.fabricValues()
	}
	merge(values, s.sites.Values)
	maps.Copy(values, more)
	s.chart = values
	return values
}

// merge adds the values of from to into, section by section, and leaves from as it is. A value
// of from replaces the value of into with the same name. An empty section of from replaces a
// section too: the defaults of liqod hold there.
func merge(into, from map[string]any) {
	for key, value := range from {
		section, isSection := value.(map[string]any)
		if !isSection {
			into[key] = value
			continue
		}
		have, isHave := into[key].(map[string]any)
		if !isHave || len(section) == 0 {
			have = map[string]any{}
			into[key] = have
		}
		merge(have, section)
	}
}

func (s *Site) installFull(ctx context.Context) error {
	if err := s.sites.Full.LoadImage(ctx, s.Cluster, s.version.image); err != nil {
		return err
	}
	address, err := s.nodeAddress(ctx)
	if err != nil {
		return err
	}
	s.AuthURL = "https://" + net.JoinHostPort(address, strconv.Itoa(authNodePort))
	values := s.values(map[string]any{"authentication": map[string]any{
		"url": s.AuthURL, "apiServerURL": s.APIServer,
		"service": map[string]any{"type": "NodePort", "nodePort": authNodePort, "externalTrafficPolicy": "Cluster"},
	}})
	options, roles := lab.ChartOptions{Chart: s.version.chart(), Values: values}, []string{"controller", "webhook"}
	switch s.sites.Fabric {
	case FabricProcesses:
		options.Without, roles = fabricWorkloads(), append(roles, "ipam")
	case FabricPods:
		roles = append(roles, "ipam", "gateway")
	case FabricOff:
	}
	if err := s.Cluster.Install(ctx, options); err != nil {
		return fmt.Errorf("installing liqod in %s: %w", s.Name, err)
	}
	if s.sites.Fabric == FabricProcesses {
		if err := s.startFabric(ctx); err != nil {
			return err
		}
	}
	for _, role := range roles {
		if err := lab.Eventually(ctx, func(ctx context.Context) error { return s.available(ctx, Namespace, "liqod-"+role) }); err != nil {
			return fmt.Errorf("role %s in %s: %w", role, s.Name, err)
		}
	}
	if s.sites.Fabric == FabricPods {
		return lab.Eventually(ctx, s.routing)
	}
	return nil
}

// nodeAddress is where the ports of nodes are reached.
func (s *Site) nodeAddress(ctx context.Context) (string, error) {
	nodes, err := s.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("listing the nodes of %s: %w", s.Name, err)
	}
	for _, node := range nodes.Items {
		for _, address := range node.Status.Addresses {
			if address.Type == corev1.NodeInternalIP {
				return address.Address, nil
			}
		}
	}
	return "", fmt.Errorf("no node of %s has an address", s.Name)
}

func (s *Site) available(ctx context.Context, namespace, deployment string) error {
	d, err := s.Client().AppsV1().Deployments(namespace).Get(ctx, deployment, metav1.GetOptions{})
	return lab.Wrong(err, d.Status.AvailableReplicas == 0, "deployment %s has no available replica", deployment)
}

func (s *Site) installSimulated(ctx context.Context) error {
	ports, err := s.sites.Lab.TakePorts(2)
	if err != nil {
		return err
	}
	address, auth := fmt.Sprintf("%s:%d", loopback, ports[0]), fmt.Sprintf("%s:%d", loopback, ports[1])
	s.AuthURL = "https://" + auth
	server := s.APIServer
	if !s.sites.Direct {
		server = s.Proxied().URL
	}
	values := s.values(map[string]any{
		"authentication": map[string]any{"url": s.AuthURL, "apiServerURL": server},
		"webhook":        map[string]any{"url": "https://" + address},
		"virtualKubelet": map[string]any{"nodeAddress": loopback},
	})
	if err := s.Cluster.Install(ctx, lab.ChartOptions{Chart: s.version.chart(), Values: values}); err != nil {
		return fmt.Errorf("installing liqod in %s: %w", s.Name, err)
	}
	if s.Controller, err = s.role(ctx, "controller", "--authentication.address="+auth); err != nil {
		return err
	}
	s.Webhook, err = s.role(ctx, "webhook", "--webhook.address="+address)
	return err
}

// listeners are the flags with an address that one process of a role listens at.
func listeners() []string {
	return []string{"--server.address=", "--vkubelet.listenAddress=", "--authentication.address="}
}

// Replica starts another process like one, which listens elsewhere. Its name is longer by
// suffix, and of env the last entry counts.
func (s *Sites) Replica(like *lab.Process, suffix string, env ...string) (*lab.Process, error) {
	options := like.Options
	options.Name += suffix
	options.Args = slices.Clone(options.Args)
	options.Env = append(slices.Clone(options.Env), env...)
	ports, err := s.Lab.TakePorts(len(listeners()))
	if err != nil {
		return nil, err
	}
	for i, arg := range options.Args {
		for j, flag := range listeners() {
			if strings.HasPrefix(arg, flag) {
				options.Args[i] = fmt.Sprintf("%s127.0.0.1:%d", flag, ports[j])
			}
		}
	}
	return s.Lab.Process(options)
}

// role starts a role as the process that its pod would be.
func (s *Site) role(ctx context.Context, name string, args ...string) (*lab.Process, error) {
	return s.roleIn(ctx, nil, name, name, "liqod-"+name, args...)
}

// roleIn starts a role in the network of a machine, as a process of that name, with the rights of
// an account.
func (s *Site) roleIn(ctx context.Context, m *lab.Machine, role, name, account string, args ...string) (*lab.Process, error) {
	config, err := s.writeConfig(ctx)
	if err != nil {
		return nil, err
	}
	options, err := s.options(ctx, name, Namespace, account, append([]string{"--role=" + role, "--config=" + config}, args...))
	if err != nil {
		return nil, err
	}
	if m != nil {
		options.Netns = m.Netns
	}
	return s.sites.Lab.Process(options)
}

// writeConfig writes the settings that the chart made to a file.
func (s *Site) writeConfig(ctx context.Context) (string, error) {
	cm, err := s.Client().CoreV1().ConfigMaps(Namespace).Get(ctx, "liqod", metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading the configuration that the chart made: %w", err)
	}
	path := filepath.Join(s.Dir, configName)
	if cm.Data[configName] == "" {
		return "", fmt.Errorf("the configuration that the chart made has no %s", configName)
	}
	return path, lab.WriteFile(path, []byte(cm.Data[configName]))
}

// options say how a role runs as a process: with the token of its service account, in the
// simulated tier through the front of the API server unless Direct.
func (s *Site) options(ctx context.Context, name, namespace, account string, args []string) (lab.ProcessOptions, error) {
	var kubeconfig string
	err := lab.Eventually(ctx, func(ctx context.Context) (err error) {
		kubeconfig, err = s.KubeconfigFor(ctx, lab.Access{Namespace: namespace, ServiceAccount: account, Proxied: s.proxied()})
		return err
	})
	if err != nil {
		return lab.ProcessOptions{}, err
	}
	ports, err := s.sites.Lab.TakePorts(1)
	if err != nil {
		return lab.ProcessOptions{}, err
	}
	return lab.ProcessOptions{
		Name: s.Name + "-" + name, Path: s.version.binary, ClockAhead: s.Options.ClockAhead,
		Args: append(args, "--kubeconfig="+kubeconfig, fmt.Sprintf("--server.address=%s:%d", loopback, ports[0])),
	}, nil
}

// proxied says whether the roles reach API servers through their fronts.
func (s *Site) proxied() bool { return s.sites.Full == nil && !s.sites.Direct }

// Restart starts a process of a role again after it has been killed, as a crash does
// if it still runs.
func (s *Sites) Restart(p **lab.Process) error {
	(*p).Kill()
	<-(*p).Exited()
	again, err := s.Lab.Process((*p).Options)
	if err != nil {
		return err
	}
	*p = again
	return nil
}

// VKubelet returns the process of a virtual node of the simulated tier, for Restart.
func (s *Site) VKubelet(node string) **lab.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.vkubelets[node]
}

// PeerOptions say how a consumer uses a provider.
type PeerOptions struct {
	// Node is the name of the virtual node. Default: the provider's name.
	Node string
	// Labels of the virtual node.
	Labels map[string]string
	// Resources of the virtual node. Default: room for 1000 pods.
	Resources corev1.ResourceList
	// ExtraArgs of the vkubelet.
	ExtraArgs []string
}

// Peer lets s use provider through a virtual node, by the steps of
// docs/peering.md#connecting-two-clusters-by-hand, and waits until the node is Ready.
func (s *Site) Peer(ctx context.Context, provider *Site, opts PeerOptions) error {
	if opts.Node == "" {
		opts.Node = provider.Name
	}
	if err := s.Connect(ctx, provider); err != nil {
		return err
	}
	return s.AddVirtualNode(ctx, provider, opts)
}

// Connect gives s the rights of a consumer in provider, and the credentials. Clusters may
// be connected in both directions.
func (s *Site) Connect(ctx context.Context, provider *Site) error {
	kubeconfig, err := provider.Admit(ctx, s.Name, s.Options.PodCIDR)
	if err != nil {
		return err
	}
	return s.describe(ctx, provider.Name, kubeconfig)
}

// Admit gives a cluster the rights of a consumer in s, and returns its kubeconfig. ranges are
// those of the addresses of its endpoints, with commas between them.
func (s *Site) Admit(ctx context.Context, consumer, ranges string) ([]byte, error) {
	user := "system:serviceaccount:" + corev1beta1.TenantNamespace(consumer) + ":" + peerUser
	if s.sites.Certificates {
		user = PeerUser(consumer)
	}
	if err := s.Cluster.Apply(ctx, []byte(fmt.Sprintf(providerManifests, consumer, peerUser, ranges, user))); err != nil {
		return nil, fmt.Errorf("describing %s in %s: %w", consumer, s.Name, err)
	}
	return s.identity(ctx, consumer)
}

// describe tells s of a provider, and with which kubeconfig it is reached.
func (s *Site) describe(ctx context.Context, provider string, kubeconfig []byte) error {
	manifests := fmt.Sprintf(consumerManifests, provider, indent(string(kubeconfig)))
	if err := s.Cluster.Apply(ctx, []byte(manifests)); err != nil {
		return fmt.Errorf("describing %s in %s: %w", provider, s.Name, err)
	}
	// Not applied: if the provider is a consumer too, more is written there.
	fc := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: provider}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: provider}}
	if _, err := s.Liqod().CoreV1beta1().ForeignClusters().Create(ctx, fc, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("describing %s in %s: %w", provider, s.Name, err)
	}
	return nil
}

// PeerUser is the user of a peer with a certificate (Sites.Certificates).
func PeerUser(clusterID string) string {
	return corev1beta1.PeerUserPrefix + clusterID + ":" + peerUser
}

// identity returns the kubeconfig of a consumer of s.
func (s *Site) identity(ctx context.Context, consumer string) ([]byte, error) {
	if !s.sites.Certificates {
		return s.KubeconfigData(ctx, lab.Access{
			Namespace: corev1beta1.TenantNamespace(consumer), ServiceAccount: peerUser, Proxied: s.proxied(),
		})
	}
	path, err := s.KubeconfigForUser(PeerUser(consumer), corev1beta1.PeersGroup)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

func indent(s string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n    ")
}

// tenantManifest is the same on both sides, named after the other.
const tenantManifest = `
apiVersion: v1
kind: Namespace
metadata:
  name: liqo-tenant-%[1]s
  labels: {liqo.io/remote-cluster-id: %[1]s, liqo.io/tenant-namespace: "true"}
`

const providerManifests = tenantManifest + `---
apiVersion: v1
kind: ServiceAccount
metadata: {name: %[2]s, namespace: liqo-tenant-%[1]s}
---
apiVersion: core.liqo.io/v1beta1
kind: ForeignCluster
metadata: {name: %[1]s}
spec:
  clusterID: %[1]s
  userName: %[4]s
  addressRanges: [%[3]s]
`

const consumerManifests = tenantManifest + `---
apiVersion: v1
kind: Secret
metadata:
  name: %[1]s
  namespace: liqo-tenant-%[1]s
  labels: {liqo.io/identity-type: ControlPlane, liqo.io/remote-cluster-id: %[1]s}
stringData:
  kubeconfig: |
%[2]s
`

// PeerBy lets s use a provider that has admitted it (Admit) and is reached with a kubeconfig. The
// virtual node has the provider's name; PeerBy waits until it is Ready.
func (s *Site) PeerBy(ctx context.Context, provider string, kubeconfig []byte) error {
	if err := s.describe(ctx, provider, kubeconfig); err != nil {
		return err
	}
	return s.addVirtualNode(ctx, provider, PeerOptions{Node: provider})
}

// AddVirtualNode adds a virtual node for a provider that is described already, and
// waits until it is Ready.
func (s *Site) AddVirtualNode(ctx context.Context, provider *Site, opts PeerOptions) error {
	return s.addVirtualNode(ctx, provider.Name, opts)
}

func (s *Site) addVirtualNode(ctx context.Context, provider string, opts PeerOptions) error {
	tenant := corev1beta1.TenantNamespace(provider)
	if opts.Resources == nil {
		opts.Resources = defaultResources()
	}
	vn := &offloadingv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: opts.Node},
		Spec: offloadingv1beta1.VirtualNodeSpec{
			ClusterID: provider, KubeconfigSecretRef: corev1.LocalObjectReference{Name: provider},
			Labels: opts.Labels, ResourceQuota: corev1.ResourceQuotaSpec{Hard: opts.Resources},
			VirtualKubelet: offloadingv1beta1.VirtualKubeletSpec{ExtraArgs: opts.ExtraArgs},
		},
	}
	if _, err := s.Liqod().OffloadingV1beta1().VirtualNodes(tenant).Create(ctx, vn, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating virtual node %s: %w", opts.Node, err)
	}
	if s.sites.Full == nil {
		if err := s.StartVKubelet(ctx, tenant, opts.Node); err != nil {
			return err
		}
	}
	return s.WaitVirtualNode(ctx, opts.Node, corev1.ConditionTrue)
}

// StartVKubelet starts, as a process, what the Deployment of the controller asks for, with
// more in its environment.
func (s *Site) StartVKubelet(ctx context.Context, tenant, node string, env ...string) error {
	name := "vk-" + node
	var args []string
	err := lab.Eventually(ctx, lab.That(s.Client().AppsV1().Deployments(tenant), name, func(d *appsv1.Deployment) error {
		args = d.Spec.Template.Spec.Containers[0].Args
		return nil
	}))
	if err != nil {
		return fmt.Errorf("waiting for the Deployment of virtual node %s: %w", node, err)
	}
	ports, err := s.sites.Lab.TakePorts(1)
	if err != nil {
		return err
	}
	options, err := s.options(ctx, name, tenant, name, append(args,
		fmt.Sprintf("--vkubelet.listenAddress=%s:%d", loopback, ports[0]), "--vkubelet.certificateDirectory="+filepath.Join(s.Dir, "pki-"+name)))
	if err != nil {
		return err
	}
	options.Env = append(options.Env, env...)
	p, err := s.sites.Lab.Process(options)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vkubelets[node] = &p
	return nil
}
