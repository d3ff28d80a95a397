package scenarios

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

const (
	// databases is the namespace of the databases and their writers.
	databases = "databases"
	// enoughRows have to be acknowledged by each database after a fault.
	enoughRows = 10
	// acknowledged precedes, in the log of a writer, the number of each row whose commit it has seen.
	acknowledged = "acknowledged "
)

// writeRows is the program of a writer: it inserts numbers, each in a transaction of its own, and
// never the same again. A try that takes longer than 5 s is given up, whatever became of it.
const writeRows = `i=0
query() { timeout 5 psql "host=$SERVER user=postgres connect_timeout=3" -qc "$1"; }
until query 'create table if not exists numbers (i bigint primary key)'; do sleep 1; done
while :; do
	i=$((i + 1))
	if query "insert into numbers values ($i)"; then echo "` + acknowledged + `$i"; fi
	sleep 0.1
done`

// postgresWorld is two clusters with a PostgreSQL in each, and a writer for each of them in rome.
type postgresWorld struct {
	networkWorld
	places map[string]string // the node of each database in the cluster that runs it, by pod
}

// TestPostgres: a StatefulSet of class liqo of PostgreSQL, with a volume in each cluster, has each
// row whose commit a client at home has seen, whatever was deleted, killed, cut off, rebooted, unpeered
// or, with -all, restored from a backup meanwhile. The settings are those of the chart.
func TestPostgres(t *testing.T) {
	w := newPostgresWorld(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *postgresWorld)
		long bool // with -all
	}{
		{"pods deleted", postgresPodsDeleted, false}, {"vkubelet killed", postgresVKubeletKilled, false},
		{"provider cut off", postgresCutOff, false}, {"nodes rebooted", postgresRebooted, false},
		{"peered again", postgresPeeredAgain, false}, {"consumer restored", postgresConsumerRestored, true}, {"provider restored", postgresProviderRestored, true},
	} {
		if test.long && !*all {
			t.Logf("left to make test-all: %s: %s", t.Name(), test.name)
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			test.run(t, w)
			w.hasRows(t)
		})
	}
}

func newPostgresWorld(t *testing.T) *postgresWorld {
	t.Helper()
	w := &postgresWorld{networkWorld: newNetworkWorldOf(t, site.World{
		Clusters: []string{"rome", "milan"}, RealNodes: []int{2, 2}, Fabric: site.FabricPods,
		// Empty sections undo the settings of tests.
		Settings: []map[string]any{{"lease": map[string]any{}, "vkubelet": map[string]any{}}},
		Adjust:   func(o *lab.ClusterOptions) { o.Audit, o.NodeGrace = false, 40*time.Second },
	}), places: map[string]string{}}
	image, err := lab.BuildPostgres(t.Context(), t.TempDir())
	if err != nil {
		text := fmt.Sprintf("VOLUMES ARE NOT TESTED WITH POSTGRESQL: %v", err)
		if os.Getenv("CI") == "true" {
			require.Fail(t, text)
		}
		t.Skip(text)
	}
	var prepared errgroup.Group
	for _, s := range []*site.Site{w.rome, w.milan} {
		prepared.Go(func() error { return w.full.LoadImage(t.Context(), s.Cluster, image) })
		prepared.Go(func() error { return w.full.ApplyStorage(t.Context(), s.Cluster) })
	}
	require.NoError(t, prepared.Wait())
	w.peer(t)
	w.deployDatabases(t)
	return w
}

// deployDatabases runs a database in each cluster. Neither runs beside a control plane: their nodes
// are rebooted.
func (w *postgresWorld) deployDatabases(t *testing.T) {
	t.Helper()
	w.offload(t, databases, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote})
	cordon(t, w.milan, true, "milan-1")
	c := w.rome.Client()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": "db"}, Ports: []corev1.ServicePort{{Port: 5432}},
	}}
	kubetest.Create(t, c.CoreV1().Services(databases), service)
	kubetest.Create(t, c.AppsV1().StatefulSets(databases), postgresSet())
	for _, db := range []string{"db-0", "db-1"} {
		kubetest.Create(t, c.CoreV1().Pods(databases), rowWriter(db))
	}
	w.hasRows(t)
	cordon(t, w.milan, false, "milan-1")
	for _, db := range []string{"db-0", "db-1"} {
		w.places[db] = w.place(t, db)
	}
	require.ElementsMatch(t, []string{"rome-2", "milan-2"}, slices.Collect(maps.Values(w.places)), "one runs in each cluster")
	require.Equal(t, map[string]int{"rome": 1, "milan": 1}, w.volumeFolders(t))
}

// postgresSet is a StatefulSet of two databases that are not on the same node, and not on rome-1.
func postgresSet() *appsv1.StatefulSet {
	set := statefulSet("db", 2)
	spec := &set.Spec.Template.Spec
	spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsUser: ptr.To[int64](lab.PostgresUser), FSGroup: ptr.To[int64](lab.PostgresUser),
		// PostgreSQL does not start with data that the kubelet has opened to the group.
		FSGroupChangePolicy: ptr.To(corev1.FSGroupChangeOnRootMismatch),
	}
	spec.TerminationGracePeriodSeconds = ptr.To[int64](10)
	spec.Containers = []corev1.Container{{
		Name: "postgres", Image: lab.PostgresImage, ImagePullPolicy: corev1.PullNever, Env: []corev1.EnvVar{{Name: "PGDATA", Value: "/data/db"}},
		VolumeMounts: spec.Containers[0].VolumeMounts,
		ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 5, ProbeHandler: corev1.ProbeHandler{
			Exec: &corev1.ExecAction{Command: []string{"pg_isready", "-q", "-h", "127.0.0.1"}},
		}},
	}}
	spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"rome-1"},
		}}}},
	}}}
	spec.TopologySpreadConstraints = overHosts(set.Spec.Selector)
	return set
}

// rowWriter is the pod that writes to a database, on a node of rome that is not rebooted.
func rowWriter(db string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "writer-of-" + db}, Spec: corev1.PodSpec{
		NodeSelector: map[string]string{corev1.LabelHostname: "rome-1"}, TerminationGracePeriodSeconds: ptr.To[int64](1), RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{
			Name: "writer", Image: lab.PostgresImage, ImagePullPolicy: corev1.PullNever, Command: []string{"sh", "-c", writeRows},
			Env: []corev1.EnvVar{{Name: "SERVER", Value: db + ".db"}},
		}},
	}}
}

// place is the node of a database in the cluster that runs it.
func (w *postgresWorld) place(t *testing.T, db string) string {
	t.Helper()
	node := w.podOf(t, databases, db).Spec.NodeName
	if node != "milan" {
		return node
	}
	pod := kubetest.Get(t, w.milan.Client().CoreV1().Pods(databases+"-rome"), db)
	return pod.Spec.NodeName
}

// rowsAcknowledged are the numbers of the rows of a database whose commit its writer has seen.
func (w *postgresWorld) rowsAcknowledged(ctx context.Context, db string) ([]string, error) {
	log, err := w.rome.Client().CoreV1().Pods(databases).GetLogs("writer-of-"+db, &corev1.PodLogOptions{}).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	data, err := io.ReadAll(log)
	var out []string
	for line := range strings.Lines(string(data)) {
		if row, is := strings.CutPrefix(line, acknowledged); is {
			out = append(out, strings.TrimSpace(row))
		}
	}
	return out, err
}

// acknowledges returns a condition that a database has acknowledged some rows more than it has now.
func (w *postgresWorld) acknowledges(t *testing.T, db string) func(context.Context) error {
	t.Helper()
	before := -1
	return func(ctx context.Context) error {
		rows, err := w.rowsAcknowledged(ctx, db)
		if err != nil {
			return err
		}
		if before < 0 {
			before = len(rows)
		}
		return lab.Wrong(nil, len(rows) < before+enoughRows, "%s has acknowledged %d rows, %d of them before", db, len(rows), before)
	}
}

// hasRows waits until both databases acknowledge rows again, and requires that they have all rows
// that they have ever acknowledged, and are where they were.
func (w *postgresWorld) hasRows(t *testing.T) {
	t.Helper()
	for _, db := range []string{"db-0", "db-1"} {
		within(t, longest, db+" acknowledges rows", w.acknowledges(t, db))
		want := await(t, longest, db+" has acknowledged", func(ctx context.Context) ([]string, error) { return w.rowsAcknowledged(ctx, db) })
		said := await(t, longest, db+" reads its rows", func(ctx context.Context) (string, error) {
			return w.rome.Exec(ctx, databases, db, "psql", "-h", "127.0.0.1", "-U", "postgres", "-At", "-c", "select i from numbers")
		})
		have := map[string]bool{}
		for row := range strings.FieldsSeq(said) {
			have[row] = true
		}
		lost := slices.DeleteFunc(slices.Clone(want), func(row string) bool { return have[row] })
		require.Empty(t, lost, "rows that %s had acknowledged", db)
		t.Logf("%s has all %d rows that it acknowledged, and %d others", db, len(want), len(have)-len(want))
		if w.places[db] != "" {
			require.Equal(t, w.places[db], w.place(t, db), db)
		}
	}
}

// postgresPodsDeleted: the pods that replace them have the rows.
func postgresPodsDeleted(t *testing.T, w *postgresWorld) {
	for _, db := range []string{"db-0", "db-1"} {
		before := w.podOf(t, databases, db).UID
		require.NoError(t, w.rome.Client().CoreV1().Pods(databases).Delete(t.Context(), db, metav1.DeleteOptions{}))
		within(t, longest, "another "+db+" runs", lab.Is(w.rome.Client().CoreV1().Pods(databases), db, func(pod *corev1.Pod) bool {
			return pod.UID != before && podReady(pod) == corev1.ConditionTrue
		}))
	}
}

// postgresVKubeletKilled: neither database notices it.
func postgresVKubeletKilled(t *testing.T, w *postgresWorld) {
	here, there := w.databaseContainers(t)
	storeWorld{w.fullWorld}.kill(t, "vkubelet")
	w.hasRows(t)
	hereNow, thereNow := w.databaseContainers(t)
	require.Equal(t, here, hereNow)
	require.Equal(t, there, thereNow)
}

func (w *postgresWorld) databaseContainers(t *testing.T) (here, there map[string]string) {
	t.Helper()
	here, err := containers(t.Context(), w.rome, databases)
	require.NoError(t, err)
	there, err = containers(t.Context(), w.milan, databases+"-rome")
	require.NoError(t, err)
	return here, there
}

// postgresCutOff: while the provider is cut off, the database at home goes on, and the other one
// waits. It is the same when the provider is back.
func postgresCutOff(t *testing.T, w *postgresWorld) {
	_, there := w.databaseContainers(t)
	back := w.cutOff(t)
	for db, node := range w.places {
		if runsIn(node) == "rome" {
			within(t, longest, db+" goes on", w.acknowledges(t, db))
			continue
		}
		before := must(w.rowsAcknowledged(t.Context(), db))(t)
		hold(t, cutFor, db+" waits", func(ctx context.Context) error {
			now, err := w.rowsAcknowledged(ctx, db)
			return lab.Wrong(err, len(now) > len(before), "it has acknowledged %d rows", len(now)-len(before))
		})
	}
	back()
	w.hasRows(t)
	_, thereNow := w.databaseContainers(t)
	require.Equal(t, there, thereNow, "the provider's database ran all the time")
}

// postgresRebooted ends the nodes of both databases as a power failure does.
func postgresRebooted(t *testing.T, w *postgresWorld) {
	for db, name := range w.places {
		c := w.rome.Cluster
		if runsIn(name) == "milan" {
			c = w.milan.Cluster
		}
		require.NoError(t, w.full.Node(c, name).Reboot(t.Context()))
		within(t, longest, db+" acknowledges rows after the power failure of "+name, w.acknowledges(t, db))
	}
}
