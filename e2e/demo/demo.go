package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

const (
	// patience is how long a step may take before the demo gives up.
	patience = 2 * time.Minute
	local    = "shop"
	twin     = "shop-rome"
)

// demo tells the story once.
type demo struct {
	console *console
	keep    bool

	lab      *lab.Lab
	full     *lab.Full
	sites    *site.Sites
	clusters struct{ rome, milan, turin *lab.Cluster }
	// rome, milan and turin are the clusters with liqod on them.
	rome, milan, turin *site.Site

	// before is what ran when rome's control plane was killed, by name of the cluster and of the pod.
	before map[string]map[string]running

	begin   time.Time
	pace    *pace
	steps   []step
	results []string
	// left is why something of the clusters could not be removed.
	left error
}

// step is a part of the story that has been told.
type step struct {
	title string
	took  time.Duration
}

func (d *demo) banner() {
	d.console.say(`liqod: three real Kubernetes clusters on this machine, working as one.

  milan   offers itself:  2 nodes
  turin   offers itself:  1 node
  rome    uses them:      1 node, and milan and turin as two more

Each has its own etcd, API server, scheduler and nodes (containerd, kubelet, kube-proxy).
All give their pods and Services the same addresses: between the clusters, packets reach
the nodes and the gateways of liqod, and nothing else. milan and turin are no peers of each other.
A machine that has not built Kubernetes before needs some minutes for that first.
Ctrl-C ends the demo at any time, and removes everything.
`)
}

// story is everything that the demo shows, in order.
func (d *demo) story(ctx context.Context) error {
	for _, s := range []struct {
		title string
		tell  func(context.Context) error
	}{
		{"Start three clusters, and build liqod and its image meanwhile", d.startClusters},
		{"Install DNS, and liqod by its chart, in all", d.install},
		{"Connect them: rome uses milan and turin", d.connect},
		{"Offload the namespace shop", d.offload},
		{"Deploy an application that spans all", d.deploy},
		{"A pod in rome calls a Service whose pods are in all clusters", d.call},
		{"A pod in milan calls back, and calls a pod in turin", d.callBack},
		{"A volume in each cluster", d.volumes},
		{"Kill milan's gateway", d.loseGateway},
		{"Logs and exec across the border", d.logsAndExec},
		{"Kill rome's control plane", d.loseRome},
		{"Bring rome back", d.regainRome},
		{"Delete the application", d.remove},
	} {
		if err := d.step(ctx, s.title, s.tell); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) step(ctx context.Context, title string, tell func(context.Context) error) error {
	expected := d.pace.expected(title)
	d.console.heading(fmt.Sprintf("%d. %s", len(d.steps)+1, title))
	if expected != "" {
		d.console.note("%s", expected)
	}
	begin := time.Now()
	err := d.accompanied(ctx, expected, tell)
	if err != nil {
		return fmt.Errorf("step %d, %q: %w", len(d.steps)+1, title, err)
	}
	d.steps = append(d.steps, step{title, time.Since(begin)})
	return nil
}

// accompanied runs a step and says so whenever it is silent for long.
func (d *demo) accompanied(ctx context.Context, expected string, tell func(context.Context) error) error {
	silent, end := context.WithCancel(ctx)
	var company sync.WaitGroup
	company.Go(func() { d.company(silent, expected) })
	defer company.Wait()
	defer end()
	return tell(ctx)
}

// until waits for what a step promises.
func (d *demo) until(ctx context.Context, cond func(context.Context) error) error {
	return lab.Within(ctx, patience, cond)
}

// startClusters starts the clusters. Most of the time they wait for each other's parts:
// liqod is built meanwhile.
func (d *demo) startClusters(ctx context.Context) (err error) {
	if d.full, err = lab.NewFull(ctx, d.lab, lab.FullOptions{Network: lab.NetworkOptions{Isolated: true}}); err != nil {
		return err
	}
	group, starting := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		d.clusters.milan, err = d.startCluster(starting, "milan", 2)
		return err
	})
	group.Go(func() (err error) {
		d.clusters.rome, err = d.startCluster(starting, "rome", 1)
		return err
	})
	group.Go(func() (err error) {
		d.clusters.turin, err = d.startCluster(starting, "turin", 1)
		return err
	})
	group.Go(func() error { return d.build(starting) })
	group.Go(func() error { return d.addKubectl() })
	return group.Wait()
}

func (d *demo) startCluster(ctx context.Context, name string, nodes int) (*lab.Cluster, error) {
	options := lab.ClusterOptions{Name: name}
	site.FabricOptions(&options, site.IPv4)
	c, err := d.full.Start(ctx, options, nodes)
	if err != nil {
		return nil, err
	}
	return c, d.full.ApplyStorage(ctx, c)
}

func (d *demo) build(ctx context.Context) (err error) {
	if d.sites, err = site.New(ctx, d.lab, d.full); err != nil {
		return err
	}
	d.sites.Fabric, d.sites.Settings = site.FabricPods, map[string]any{"log": map[string]any{"level": "info"}}
	return nil
}

// addKubectl puts kubectl beside liqod, for people.
func (d *demo) addKubectl() error {
	if err := os.Symlink(d.lab.Kubelab(), filepath.Join(d.lab.Dir(), "kubectl")); err != nil {
		return fmt.Errorf("putting kubectl beside liqod: %w", err)
	}
	return nil
}

func (d *demo) install(ctx context.Context) error {
	group, installing := errgroup.WithContext(ctx)
	// Names are needed by the application, and not by liqod.
	for _, c := range []*lab.Cluster{d.clusters.milan, d.clusters.rome, d.clusters.turin} {
		group.Go(func() error { return d.full.ApplyCoreDNS(installing, c) })
	}
	group.Go(func() (err error) {
		d.milan, err = d.sites.Install(installing, d.clusters.milan)
		return err
	})
	group.Go(func() (err error) {
		d.rome, err = d.sites.Install(installing, d.clusters.rome)
		return err
	})
	group.Go(func() (err error) {
		d.turin, err = d.sites.Install(installing, d.clusters.turin)
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	if err := d.writeKubeconfig(); err != nil {
		return err
	}
	d.hints()
	if err := d.showSettings(); err != nil {
		return err
	}
	if err := d.show(ctx, d.milan, get{resource: "nodes"}); err != nil {
		return err
	}
	return d.show(ctx, d.rome, get{namespace: site.Namespace, resource: "pods"})
}

// installed are the clusters with liqod on them, the user of the others last; nil for one that has none yet.
func (d *demo) installed() []*site.Site { return []*site.Site{d.turin, d.milan, d.rome} }

// kubeconfig is one file with all clusters, as contexts of their names.
func (d *demo) kubeconfig() string { return filepath.Join(d.lab.Dir(), "kubeconfig") }

func (d *demo) writeKubeconfig() error {
	all := clientcmdapi.NewConfig()
	for _, s := range d.installed() {
		one, err := clientcmd.LoadFromFile(s.Kubeconfig)
		if err != nil {
			return fmt.Errorf("reading the kubeconfig of %s: %w", s.Name, err)
		}
		context := one.Contexts[one.CurrentContext]
		all.Clusters[s.Name], all.AuthInfos[s.Name] = one.Clusters[context.Cluster], one.AuthInfos[context.AuthInfo]
		all.Contexts[s.Name] = &clientcmdapi.Context{Cluster: s.Name, AuthInfo: s.Name}
		all.CurrentContext = s.Name
	}
	if err := clientcmd.WriteToFile(*all, d.kubeconfig()); err != nil {
		return fmt.Errorf("writing the kubeconfig of the clusters: %w", err)
	}
	return nil
}

func (d *demo) hints() {
	d.console.say(`
To look for yourself, in another terminal and as root, with the kubectl and liqod of the demo:
  export KUBECONFIG=%s PATH=%s:$PATH`, d.kubeconfig(), d.lab.Dir())
}

// nodeGraceDefault is that of Kubernetes.
const nodeGraceDefault = "50s"

// showSettings prints what of rome differs from the defaults of liqod and Kubernetes.
func (d *demo) showSettings() error {
	settings, err := d.rome.Settings()
	if err != nil {
		return err
	}
	rows := [][]string{{"VALUE OF THE CHART", "HERE", "DEFAULT"}}
	for _, s := range settings {
		rows = append(rows, []string{s.Name, s.Here, s.Default})
	}
	d.console.say("\nSettings that differ from the defaults, in rome (milan and turin have the same, with their own ids and addresses):")
	d.console.table(append(rows, []string{"kube-controller-manager --node-monitor-grace-period", d.rome.Options.NodeGrace.String(), nodeGraceDefault}))
	d.console.say("The shorter times have a fault noticed within seconds. docs/continuity.md has the times of the defaults.")
	return nil
}
