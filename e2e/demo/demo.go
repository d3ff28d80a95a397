package main

import (
	"context"
	"fmt"
	"path/filepath"
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

	lab         *lab.Lab
	full        *lab.Full
	sites       *site.Sites
	rome, milan *site.Site

	// before is what ran when rome's control plane was killed, by name of the pod.
	before struct{ rome, milan map[string]running }

	begin   time.Time
	steps   []step
	results []string
}

// step is a part of the story that has been told.
type step struct {
	title string
	took  time.Duration
}

func (d *demo) banner() {
	d.console.say(`liqod: two real Kubernetes clusters on this machine, working as one.

  milan   offers itself: 2 nodes
  rome    uses it:       1 node, and milan as one more

Each has its own etcd, API server, scheduler and nodes (containerd, kubelet, kube-proxy).
Both give their pods and Services the same addresses: between the clusters, packets reach
the nodes and the gateways of liqod, and nothing else.
A machine that has not built Kubernetes before needs some minutes for that first.
`)
}

// story is everything that the demo shows, in order.
func (d *demo) story(ctx context.Context) error {
	for _, s := range []struct {
		title string
		tell  func(context.Context) error
	}{
		{"Build liqod and its image", d.build},
		{"Start two clusters and install liqod by its chart", d.startClusters},
		{"Connect them: rome uses milan", d.connect},
		{"Offload the namespace shop", d.offload},
		{"Deploy an application that spans both", d.deploy},
		{"A pod in rome calls a Service whose pods are in both clusters", d.call},
		{"A pod in milan calls back", d.callBack},
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
	d.console.heading(fmt.Sprintf("%d. %s", len(d.steps)+1, title))
	begin := time.Now()
	if err := tell(ctx); err != nil {
		return fmt.Errorf("step %d, %q: %w", len(d.steps)+1, title, err)
	}
	d.steps = append(d.steps, step{title, time.Since(begin)})
	return nil
}

// until waits for what a step promises.
func (d *demo) until(ctx context.Context, cond func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return lab.Eventually(ctx, cond)
}

func (d *demo) build(ctx context.Context) (err error) {
	if d.full, err = lab.NewFull(ctx, d.lab, lab.FullOptions{Network: lab.NetworkOptions{Isolated: true}}); err != nil {
		return err
	}
	if d.sites, err = site.New(ctx, d.lab, d.full); err != nil {
		return err
	}
	d.sites.Fabric, d.sites.Settings = site.FabricPods, map[string]any{"log": map[string]any{"level": "info"}}
	return nil
}

func (d *demo) startClusters(ctx context.Context) error {
	group, starting := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		d.milan, err = d.startCluster(starting, "milan", 2)
		return err
	})
	group.Go(func() (err error) {
		d.rome, err = d.startCluster(starting, "rome", 1)
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	if err := d.writeKubeconfig(); err != nil {
		return err
	}
	d.hints()
	if err := d.show(ctx, d.milan, get{resource: "nodes"}); err != nil {
		return err
	}
	return d.show(ctx, d.rome, get{namespace: site.Namespace, resource: "pods"})
}

func (d *demo) startCluster(ctx context.Context, name string, nodes int) (*site.Site, error) {
	options := lab.ClusterOptions{Name: name}
	site.FabricOptions(&options)
	c, err := d.full.Start(ctx, options, nodes)
	if err != nil {
		return nil, err
	}
	var s *site.Site
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.full.ApplyCoreDNS(ctx, c) })
	group.Go(func() (err error) {
		s, err = d.sites.Install(ctx, c)
		return err
	})
	return s, group.Wait()
}

// kubeconfig is one file with both clusters, as contexts rome and milan.
func (d *demo) kubeconfig() string { return filepath.Join(d.lab.Dir(), "kubeconfig") }

func (d *demo) writeKubeconfig() error {
	all := clientcmdapi.NewConfig()
	for _, s := range []*site.Site{d.milan, d.rome} {
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
		return fmt.Errorf("writing the kubeconfig of both clusters: %w", err)
	}
	return nil
}

func (d *demo) hints() {
	d.console.say(`
To look for yourself, in another terminal and as root (the demo itself needs no kubectl; liqod is in the same folder):
  export KUBECONFIG=%s PATH=$PATH:%s`, d.kubeconfig(), d.lab.Dir())
}
