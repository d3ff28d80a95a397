package scenarios

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

const (
	// lossNamespace is offloaded in each consumer.
	lossNamespace = "loss"
	// customerPace is the time between two requests of a customer.
	customerPace = "50ms"
)

// lossWorld is clusters with the defaults of the chart, but for the numbers of replicas.
type lossWorld struct {
	networkWorld
	// shops are those of rome and, if the peering is two-way, of milan.
	shops []shop
	// turin peers with milan while roles are lost; nil: no cluster does.
	turin *site.Site
}

// roleLoss is a time without some pods of roles, in both clusters at once.
type roleLoss struct {
	roles []string
	lasts time.Duration
	// left is the number of pods that each role keeps. The active one is lost.
	left int
	// felt says that requests fail, or that pods leave Services: it is in the nature of the role.
	felt bool
}

// lossTime is how long TestReplicasLost keeps a replica away with -all: two minutes, and with LAB_LONG
// ten.
func lossTime() time.Duration {
	if os.Getenv("LAB_LONG") != "" {
		return 10 * time.Minute
	}
	return 2 * time.Minute
}

// TestRolesLost: each cluster has the replicas of the chart's defaults. While a role is away in both clusters,
// no request fails, no endpoint leaves a Service and no pod is changed, except without gateways,
// and without vkubelets for longer than the grace period of the virtual node. With -all the log is
// the first table of docs/continuity.md#high-availability; otherwise the roles without such an exception are away
// at once, for longer than any Lease or heartbeat lasts.
func TestRolesLost(t *testing.T) {
	losses := []roleLoss{{roles: []string{"controller", "webhook", "ipam", "route"}, lasts: 50 * time.Second}}
	if *all {
		losses = []roleLoss{
			{roles: []string{"webhook"}, lasts: 2 * time.Minute}, {roles: []string{"ipam"}, lasts: 2 * time.Minute},
			{roles: []string{"route"}, lasts: 6 * time.Minute}, {roles: []string{"controller"}, lasts: 10 * time.Minute},
			{roles: []string{"gateway"}, lasts: 2 * time.Minute, felt: true}, {roles: []string{"vkubelet"}, lasts: 10 * time.Minute, felt: true},
		}
	}
	newLossWorld(t, 1, false).lack(t, losses)
}

// TestReplicasLost: each cluster has two replicas of each role and uses the other one. While one replica
// of a role is away, the active one before, no request fails, no endpoint leaves a Service, no pod is
// changed, and new pods run. While both are away it is as in TestRolesLost. With -all the log is the second
// table of docs/continuity.md#high-availability, in peerings of both kinds; otherwise roles are lost at once.
func TestReplicasLost(t *testing.T) {
	replicated := []string{"controller", "webhook", "ipam", "gateway", "vkubelet"}
	if !*all {
		newLossWorld(t, 2, true).lack(t, []roleLoss{
			// TestReplicas loses gateways. Without role route, nodes would not move to those that are just back.
			{roles: []string{"controller", "webhook", "ipam", "vkubelet"}, left: 1, lasts: 50 * time.Second},
			{roles: []string{"controller", "webhook", "ipam"}, lasts: 50 * time.Second},
		})
		return
	}
	var one, none []roleLoss
	for _, role := range replicated {
		one = append(one, roleLoss{roles: []string{role}, left: 1, lasts: lossTime()})
		none = append(none, roleLoss{roles: []string{role}, lasts: lossTime(), felt: role == "gateway" || role == "vkubelet"})
	}
	for name, twoWay := range map[string]bool{"one-way": false, "two-way": true} {
		t.Run(name, func(t *testing.T) {
			w := newLossWorld(t, 2, twoWay)
			t.Run("one is left", func(t *testing.T) { w.lack(t, one) })
			t.Run("none is left", func(t *testing.T) { w.lack(t, none) })
		})
	}
}

// newLossWorld starts clusters with a number of replicas of each role, lets rome use milan and, if
// the peering is two-way, milan use rome, and opens the shops.
func newLossWorld(t *testing.T, replicas int, twoWay bool) lossWorld {
	t.Helper()
	// Empty sections undo the settings of tests.
	settings := map[string]any{"lease": map[string]any{}, "vkubelet": map[string]any{},
		// Some capacity is left for turin.
		"sharing": map[string]any{"peerLimits": []string{"rome cpu=1 memory=4Gi pods=50", "milan cpu=1 memory=4Gi pods=50"}},
	}
	if !*all {
		// No endpoint may leave. Beside other tests, an API server or a gateway that gets no CPU for seconds
		// counts as down by the defaults; that verdict is not what this test is about. A second gateway
		// outlasts its silence.
		settings["probe"] = map[string]any{"timeout": "10s"}
		if replicas == 1 {
			settings["gateway"] = map[string]any{"probe": map[string]any{"silence": "10s"}}
		}
	}
	of := site.World{
		Clusters: []string{"rome", "milan"}, RealNodes: []int{replicas, 2}, Fabric: site.FabricPods, Settings: []map[string]any{settings},
		Adjust: func(o *lab.ClusterOptions) { o.Audit, o.NodeGrace = false, 40*time.Second },
	}
	if replicas > 1 {
		of.Values = valuesOfReplicas(replicas)
	}
	if *all {
		of.Clusters, of.RealNodes = append(of.Clusters, "turin"), append(of.RealNodes, 1)
	}
	network, list := startNetwork(t, of)
	w := lossWorld{networkWorld: network, shops: []shop{{network}}}
	if len(list) > 2 {
		w.turin = list[2]
	}
	if twoWay {
		w.shops = append(w.shops, shop{networkWorld{&fullWorld{world{sites: w.sites, rome: w.milan, milan: w.rome}, w.full}}})
	}
	for _, p := range w.shops {
		p.open(t)
	}
	within(t, longest, "all is well at first", w.well)
	return w
}

// well says whether all roles are there, each cluster says so, and customers are served.
func (w lossWorld) well(ctx context.Context) error {
	for _, s := range []*site.Site{w.rome, w.milan} {
		for _, role := range allRoles() {
			if err := w.complete(ctx, s, role); err != nil {
				return err
			}
		}
	}
	seen, err := w.look(ctx)
	if err != nil {
		return err
	}
	for what, is := range seen {
		if want := wanted(what); is != want && !strings.HasPrefix(is, want+" ") {
			return fmt.Errorf("%s: %s", what, is)
		}
	}
	return w.served(ctx)
}

// sales returns what became of the requests of all customers since the last call.
func (w lossWorld) sales(ctx context.Context) (map[string]tally, error) {
	out := map[string]tally{}
	for _, p := range w.shops {
		of, err := p.sales(ctx)
		if err != nil {
			return nil, err
		}
		maps.Copy(out, of)
	}
	return out, nil
}

// served says whether no request of a customer has failed since the last call.
func (w lossWorld) served(ctx context.Context) error {
	sales, err := w.sales(ctx)
	for customer, of := range sales {
		if of.Failed > 0 || of.Requests == 0 {
			err = errors.Join(err, fmt.Errorf("customer %s: %+v", customer, of))
		}
	}
	return err
}

// lack takes pods away, one loss after the other.
func (w lossWorld) lack(t *testing.T, losses []roleLoss) {
	for _, l := range losses {
		t.Run(strings.Join(l.roles, " and "), func(t *testing.T) { w.without(t, l) })
	}
}

// without takes roles from both clusters for a time, and logs what happens.
func (w lossWorld) without(t *testing.T, l roleLoss) {
	before, err := w.containers(t.Context())
	require.NoError(t, err)
	token := ""
	if w.turin != nil {
		token = tokenOf(t, w.sites, w.milan)
	}
	_, err = w.sales(t.Context())
	require.NoError(t, err)
	book := w.watch(t)
	defer func() { t.Logf("%d left of %v for %s:\n%s", l.left, l.roles, l.lasts, book.end()) }()
	var back []func()
	for _, role := range l.roles {
		for _, s := range []*site.Site{w.rome, w.milan} {
			if w.has(s, role) {
				back = append(back, w.lose(t, s, role, l.left))
			}
		}
	}
	book.note("away: %v", l.roles)
	began := time.Now()
	made := w.tryNew(t, book, token)
	hold(t, time.Until(began.Add(l.lasts)), "the test goes on", func(context.Context) error { return nil })
	meanwhile, err := w.sales(t.Context())
	book.note("customers: %+v (%v)", meanwhile, err)
	w.statuses(t, book)
	for _, f := range back {
		f()
	}
	book.note("back")
	within(t, longest, "customers are served", w.served)
	book.note("customers are served")
	within(t, 10*time.Minute, "all is well again", w.well)
	book.note("all is well")
	w.forgetNew(t, book, token)
	if l.felt {
		return
	}
	require.NoError(t, err)
	for customer, of := range meanwhile {
		require.Zero(t, of.Failed, "customer %s: %v", customer, of.Failures)
		require.Greater(t, of.Requests, enoughRequests)
	}
	book.end()
	require.Empty(t, book.fewer, "endpoints that left a Service, and pods that were not Ready")
	after := must(w.containers(t.Context()))(t)
	require.Equal(t, before, after, "no pod of a shop was made or started again")
	if l.left > 0 {
		require.True(t, made, "new pods and peers have not waited")
	}
}

// containers returns the pods of shops in each namespace, with their containers.
func (w lossWorld) containers(ctx context.Context) (map[string]map[string]string, error) {
	out := map[string]map[string]string{}
	for _, p := range w.shops {
		for s, namespace := range p.namespaces() {
			pods, err := containers(ctx, s, namespace)
			if err != nil {
				return nil, err
			}
			out[s.Name+"/"+namespace] = pods
		}
	}
	return out, nil
}
