package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The components of a control plane, as Component knows them.
const (
	Etcd              = "etcd"
	APIServer         = "apiserver"
	ControllerManager = "kcm"
	Scheduler         = "scheduler"
)

// controlPlane holds the running component of each name and how to start it again.
type controlPlane struct {
	mu    sync.Mutex
	args  map[string][]string
	procs map[string]*Process
}

type planePorts struct{ api, etcdClient, etcdPeer, kcm, scheduler int }

// layOut writes certificates and kubeconfigs and settles the arguments of every component.
func (c *Cluster) layOut() error {
	ports, err := c.lab.ports.take(5)
	if err != nil {
		return err
	}
	p := planePorts{api: ports[0], etcdClient: ports[1], etcdPeer: ports[2], kcm: ports[3], scheduler: ports[4]}
	c.APIServer = "https://" + net.JoinHostPort(c.Options.Address, strconv.Itoa(p.api))
	if err := makeDirs(c.path("pki"), c.path("kubeconfigs")); err != nil {
		return err
	}
	if err := c.writePKI(); err != nil {
		return err
	}
	if c.Options.EtcdFront {
		if c.etcdFront, err = newEtcdFront(c, p.etcdClient); err != nil {
			return err
		}
	}
	users := map[string]string{}
	for name, groups := range map[string][]string{"admin": {"system:masters"}, "system:kube-controller-manager": nil, "system:kube-scheduler": nil} {
		if users[name], err = c.KubeconfigForUser(name, groups...); err != nil {
			return err
		}
	}
	c.Kubeconfig = users["admin"]
	c.plane = &controlPlane{procs: map[string]*Process{}, args: map[string][]string{
		Etcd:              c.etcdArgs(p),
		APIServer:         c.apiServerArgs(p),
		ControllerManager: c.kcmArgs(p, users["system:kube-controller-manager"]),
		Scheduler:         c.schedulerArgs(p, users["system:kube-scheduler"]),
	}}
	return nil
}

func (c *Cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.Dir}, elements...)...)
}

func (c *Cluster) writePKI() error {
	authority, err := newAuthority("lab " + c.Name)
	if err != nil {
		return err
	}
	c.authority, c.CA = authority, authority.certPEM
	authorityKey, err := keyPEM(authority.key)
	if err != nil {
		return err
	}
	account, err := newKey()
	if err != nil {
		return err
	}
	accountKey, err := keyPEM(account)
	if err != nil {
		return err
	}
	err = writeFiles(map[string][]byte{c.path("pki", "ca.crt"): c.CA, c.path("pki", "ca.key"): authorityKey, c.path("pki", "sa.key"): accountKey})
	if err != nil {
		return err
	}
	kubernetesIP, err := firstAddress(c.Options.ServiceCIDRs()[0])
	if err != nil {
		return err
	}
	hosts := append([]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		"localhost", "127.0.0.1", kubernetesIP, c.Options.Address}, c.Options.ExtraAddresses...)
	for name, request := range map[string]CertificateRequest{
		"apiserver":         {CommonName: "kube-apiserver", Hosts: hosts},
		"apiserver-kubelet": {CommonName: "kube-apiserver-kubelet-client", Organizations: []string{"system:masters"}},
		"front-proxy":       {CommonName: frontProxy},
	} {
		if err := authority.IssueFiles(c.path("pki", name), request); err != nil {
			return err
		}
	}
	return nil
}

// firstAddress is the first usable address of a range: the Service kubernetes has it.
func firstAddress(cidr string) (string, error) {
	_, network, err := net.ParseCIDR(cidr)
	if err != nil {
		return "", fmt.Errorf("reading the range %q: %w", cidr, err)
	}
	ip := append(net.IP{}, network.IP...)
	last := ip[len(ip)-2:]
	binary.BigEndian.PutUint16(last, binary.BigEndian.Uint16(last)+1)
	return ip.String(), nil
}

func (c *Cluster) etcdArgs(p planePorts) []string {
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", p.etcdClient), fmt.Sprintf("http://127.0.0.1:%d", p.etcdPeer)
	return []string{
		"--name", c.Name, "--data-dir", c.path("etcd"), "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", c.Name + "=" + peer,
	}
}

func (c *Cluster) apiServerArgs(p planePorts) []string {
	pki := func(name string) string { return c.path("pki", name) }
	etcd := fmt.Sprintf("http://127.0.0.1:%d", p.etcdClient)
	if c.etcdFront != nil {
		etcd = c.etcdFront.url
	}
	args := []string{
		"--etcd-servers", etcd,
		"--bind-address", c.Options.Address, "--secure-port", strconv.Itoa(p.api), "--advertise-address", c.Options.Address,
		"--tls-cert-file", pki("apiserver.crt"), "--tls-private-key-file", pki("apiserver.key"), "--client-ca-file", pki("ca.crt"),
		"--service-account-issuer", "https://kubernetes.default.svc.cluster.local",
		"--service-account-signing-key-file", pki("sa.key"), "--service-account-key-file", pki("sa.key"),
		"--service-cluster-ip-range", c.Options.ServiceCIDR,
		"--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction", "--allow-privileged",
		"--kubelet-client-certificate", pki("apiserver-kubelet.crt"), "--kubelet-client-key", pki("apiserver-kubelet.key"),
		"--kubelet-certificate-authority", pki("ca.crt"), "--kubelet-preferred-address-types", "InternalIP",
		"--requestheader-client-ca-file", pki("ca.crt"), "--requestheader-allowed-names", frontProxy,
		"--requestheader-username-headers", remoteUser, "--requestheader-group-headers", remoteGroup,
		"--requestheader-extra-headers-prefix", remoteExtraPrefix,
		"--proxy-client-cert-file", pki("front-proxy.crt"), "--proxy-client-key-file", pki("front-proxy.key"),
		"--enable-aggregator-routing", "--profiling=false",
	}
	if net.ParseIP(c.Options.Address).IsLoopback() {
		// The Service kubernetes cannot have a loopback address as its endpoint.
		args = append(args, "--endpoint-reconciler-type", "none")
	}
	if c.Options.Audit {
		args = append(args, "--audit-policy-file", c.path("audit-policy.yaml"), "--audit-log-path", c.AuditLog(), "--audit-log-mode", "blocking")
	}
	return append(args, c.Options.APIServerArgs...)
}

func (c *Cluster) kcmArgs(p planePorts, kubeconfig string) []string {
	return append([]string{
		"--kubeconfig", kubeconfig, "--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(p.kcm), "--cert-dir", c.path("kcm-cert"),
		"--leader-elect=false", "--use-service-account-credentials", "--kube-api-qps", "300", "--kube-api-burst", "500",
		"--service-account-private-key-file", c.path("pki", "sa.key"), "--root-ca-file", c.CAFile(),
		"--cluster-signing-cert-file", c.CAFile(), "--cluster-signing-key-file", c.path("pki", "ca.key"),
		"--allocate-node-cidrs", "--cluster-cidr", c.Options.PodCIDR, "--service-cluster-ip-range", c.Options.ServiceCIDR,
		"--node-monitor-grace-period", c.Options.NodeGrace.String(), "--node-monitor-period", "1s",
	}, c.Options.ControllerManagerArgs...)
}

func (c *Cluster) schedulerArgs(p planePorts, kubeconfig string) []string {
	return []string{
		"--kubeconfig", kubeconfig, "--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(p.scheduler), "--cert-dir", c.path("scheduler-cert"),
		"--leader-elect=false", "--kube-api-qps", "300", "--kube-api-burst", "500",
	}
}

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`

func (c *Cluster) startPlane(ctx context.Context) error {
	if err := writeFiles(map[string][]byte{c.path("audit-policy.yaml"): []byte(auditPolicy)}); err != nil {
		return err
	}
	if err := c.ensureComponents(Etcd, APIServer); err != nil {
		return err
	}
	// The others would end at an API server that does not know their rights yet.
	if err := c.WaitReady(ctx); err != nil {
		return err
	}
	if err := c.ensureComponents(ControllerManager, Scheduler); err != nil {
		return err
	}
	return c.whileRunning(ctx, ControllerManager, func(ctx context.Context) error {
		_, err := c.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

func (c *Cluster) ensureComponents(names ...string) error {
	for _, name := range names {
		if p := c.Component(name); p != nil && p.Running() {
			continue
		}
		if err := c.startComponent(name); err != nil {
			return err
		}
	}
	return nil
}

// Component returns the last started process of a component, or nil. A test that
// stops one by hand starts it again with StartComponent.
func (c *Cluster) Component(name string) *Process {
	c.plane.mu.Lock()
	defer c.plane.mu.Unlock()
	return c.plane.procs[name]
}

// StartComponent starts a stopped component on its old data and ports. It does not
// wait for it to serve.
func (c *Cluster) StartComponent(name string) error {
	if p := c.Component(name); p != nil && p.Running() {
		return fmt.Errorf("cluster %s: %s runs already", c.Name, name)
	}
	return c.startComponent(name)
}

func (c *Cluster) startComponent(name string) error {
	c.plane.mu.Lock()
	defer c.plane.mu.Unlock()
	args, known := c.plane.args[name]
	if !known {
		return fmt.Errorf("no component %q: use %s, %s, %s or %s", name, Etcd, APIServer, ControllerManager, Scheduler)
	}
	path := c.kubelab
	if name == Etcd {
		path = c.lab.kubelab
	}
	p, err := c.lab.Process(ProcessOptions{
		Name: c.Name + "/" + name, Path: path, Args: append([]string{name}, args...), Dir: c.Dir, Netns: c.Options.Netns,
		Env: append(c.planeEnv(), c.lab.opts.PlaneEnv...), ClockAhead: c.Options.ClockAhead,
	})
	if err != nil {
		return err
	}
	c.plane.procs[name] = p
	return nil
}

// planeEnv is the environment of the control plane. Simulated pods have addresses that are
// somebody else's on the machine's network. So an API server on a loopback address sends what is
// for other addresses to a proxy that does not exist.
func (c *Cluster) planeEnv() []string {
	if !net.ParseIP(c.Options.Address).IsLoopback() {
		return nil
	}
	const nobody = "http://127.0.0.1:1"
	return []string{"HTTP_PROXY=" + nobody, "HTTPS_PROXY=" + nobody, "NO_PROXY="}
}

// KillAPIServer ends the API server as a crash would.
func (c *Cluster) KillAPIServer() { c.Component(APIServer).Kill() }

// StartAPIServer starts the API server on its old data and port and returns when it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if err := c.StartComponent(APIServer); err != nil {
		return err
	}
	return c.WaitReady(ctx)
}

// WaitReady returns when the API server says that it is ready.
func (c *Cluster) WaitReady(ctx context.Context) error {
	return c.whileRunning(ctx, APIServer, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		return c.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// PauseAPIServer freezes the API server: it takes connections and never answers.
func (c *Cluster) PauseAPIServer() { c.Component(APIServer).Pause() }

// ResumeAPIServer lets a paused API server go on.
func (c *Cluster) ResumeAPIServer() { c.Component(APIServer).Resume() }

// KillControlPlane ends all components of the control plane as a crash of the
// machine under them would.
func (c *Cluster) KillControlPlane() {
	for _, name := range []string{Scheduler, ControllerManager, APIServer, Etcd} {
		if p := c.Component(name); p != nil {
			p.Kill()
		}
	}
}

// StartControlPlane starts the components that do not run and returns when pods can
// be created.
func (c *Cluster) StartControlPlane(ctx context.Context) error { return c.startPlane(ctx) }

// BackUp copies the data of etcd while the control plane is down, and returns the folder of the copy.
func (c *Cluster) BackUp(ctx context.Context) (string, error) {
	backup := c.path("etcd-backup")
	c.KillControlPlane()
	if err := os.CopyFS(backup, os.DirFS(c.path("etcd"))); err != nil {
		return "", fmt.Errorf("copying the data of etcd of cluster %s: %w", c.Name, err)
	}
	return backup, c.StartControlPlane(ctx)
}

// Restore gives etcd the data of BackUp, whose folder it takes.
func (c *Cluster) Restore(ctx context.Context, backup string) error {
	data := c.path("etcd")
	c.KillControlPlane()
	if err := errors.Join(os.RemoveAll(data), os.Rename(backup, data)); err != nil {
		return fmt.Errorf("restoring etcd of cluster %s: %w", c.Name, err)
	}
	return c.StartControlPlane(ctx)
}

// whileRunning waits for cond, and no longer than the component runs.
func (c *Cluster) whileRunning(ctx context.Context, name string, cond func(context.Context) error) error {
	p := c.Component(name)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-p.Exited():
			cancel(errComponentEnded)
		case <-ctx.Done():
		}
	}()
	err := Eventually(ctx, cond)
	if errors.Is(err, errComponentEnded) {
		return fmt.Errorf("%s ended (%v) instead of serving; the end of its log:\n%s", p.Name, p.Err(), p.Tail(2000))
	}
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", p.Name, err)
	}
	return nil
}

var errComponentEnded = errors.New("the component ended")
