package cmd

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/roles/cmd/report"
)

// gathering has the flags of gather.
type gathering struct {
	conn      *connection
	namespace string
	file      string
	since     time.Duration
	lines     int64
	mostPods  int
	timeout   time.Duration
}

func (c *commands) gather() *cobra.Command {
	g := &gathering{}
	cmd := &cobra.Command{Use: "gather", Short: "Write an archive with the state of liqod in this cluster", Args: noArguments}
	flags := cmd.Flags()
	flags.StringVarP(&g.file, "file", "f", "", "`file` to create; - is the standard output; else liqod-CLUSTER-TIME.tar.gz")
	flags.StringVarP(&g.namespace, "namespace", "n", "", "`namespace` that liqod is installed in; else that of ClusterRoleBinding liqod-controller")
	flags.DurationVar(&g.since, "since", 0, "no log lines that are older; 0 is all that is kept")
	flags.Int64Var(&g.lines, "lines", 5000, "log lines of each container")
	flags.IntVar(&g.mostPods, "max-pods", 50, "pods of each role, for logs, metrics and the state of the network")
	flags.DurationVar(&g.timeout, "timeout", 2*time.Minute, "how long to read; the archive has what was read until then")
	g.conn = c.connection(flags)
	cmd.RunE = interruptible(func(cmd *cobra.Command, _ []string) error {
		if g.lines < 1 || g.mostPods < 1 {
			return Usagef("--lines and --max-pods: numbers from 1 on are accepted")
		}
		if g.timeout <= 0 {
			return Usagef("--timeout=%s: more than 0 is accepted", g.timeout)
		}
		return c.writeArchive(cmd, g)
	})
	return cmd
}

// writeArchive reads a cluster and writes what it has read.
func (c *commands) writeArchive(cmd *cobra.Command, g *gathering) error {
	ctx, cancel := after(cmd.Context(), g.timeout)
	defer cancel()
	g.conn.limit = min(g.timeout, patience)
	to, err := c.connect(g.conn)
	if err != nil {
		return err
	}
	snap, err := c.read(ctx, to, g.namespace, false)
	if err != nil {
		return err
	}
	if err := cmd.Context().Err(); err != nil {
		return err
	}
	if err := snap.Unread[report.ReadInstallation]; err != nil && g.namespace == "" {
		return fmt.Errorf("values of the Secrets of liqod cannot be removed from an archive without its namespace: %w", err)
	}
	h := &harvest{to: to, snap: snap, flags: g, redactor: newRedactor(), texts: map[string]string{}, unread: map[string]error{}}
	h.all(ctx, c.build.Version)
	if err := cmd.Context().Err(); err != nil {
		return err
	}
	cluster := cmp.Or(snap.ClusterID, "unknown")
	top := "liqod-" + cluster + "-" + snap.Taken.UTC().Format("20060102-150405")
	files, unread := h.files()
	if g.file == "-" {
		return pack(cmd.OutOrStdout(), top, files, snap.Taken)
	}
	file := cmp.Or(g.file, top+".tar.gz")
	if err := create(file, func(out io.Writer) error { return pack(out, top, files, snap.Taken) }); err != nil {
		return err
	}
	if err := say(cmd.OutOrStdout(), "%s: %d files about cluster %s", file, len(files), cluster); err != nil {
		return err
	}
	if unread > 0 {
		return say(cmd.OutOrStdout(), "%d things could not be read: see unread.txt in it", unread)
	}
	return nil
}

// create writes a new file that only its owner may read. It leaves no half of a file behind.
func create(name string, write func(io.Writer) error) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists already: name another one with --file", name)
	}
	if err != nil {
		return fmt.Errorf("creating the archive: %w", err)
	}
	if err := errors.Join(write(file), file.Close()); err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", name, err), os.Remove(name))
	}
	return nil
}

// pack writes files as tar.gz, sorted, below a folder.
func pack(out io.Writer, top string, files map[string]string, now time.Time) error {
	zipped := gzip.NewWriter(out)
	archive := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: path.Join(top, name), Mode: 0o600, Size: int64(len(files[name])), ModTime: now}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("packing %s: %w", name, err)
		}
		if _, err := io.Copy(archive, strings.NewReader(files[name])); err != nil {
			return fmt.Errorf("packing %s: %w", name, err)
		}
	}
	return errors.Join(archive.Close(), zipped.Close())
}

// execution runs a command in a container, and writes its output. It is a field of clients.
type execution func(ctx context.Context, namespace, pod, container string, command []string, out io.Writer) error

const (
	// readsAtOnce limits the concurrent requests.
	readsAtOnce = 8
	// mostLog is the limit of one log in bytes, mostState that of other outputs.
	mostLog, mostState = 8 << 20, 8 << 20
)

// harvest collects the files of an archive.
type harvest struct {
	to       *clients
	snap     *report.Snapshot
	flags    *gathering
	redactor *redactor

	mu     sync.Mutex
	texts  map[string]string
	unread map[string]error
}

// add adds a file, or the reason for which it is missing or incomplete.
func (h *harvest) add(name, text string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.unread[name] = err
	}
	if err == nil || text != "" {
		h.texts[name] = text
	}
}

// files returns the files by name, without values of Secrets, and the number of those that
// could not be read. Nothing adds files meanwhile.
func (h *harvest) files() (map[string]string, int) {
	out := maps.Clone(h.texts)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(h.unread)) {
		fmt.Fprintf(&b, "%s: %v\n", name, h.unread[name])
	}
	if b.Len() > 0 {
		out["unread.txt"] = b.String()
	}
	h.redactor.clean(out)
	return out, len(h.unread)
}

// all reads everything. It returns early when ctx ends.
func (h *harvest) all(ctx context.Context, version string) {
	h.judge(version)
	h.secrets(ctx)
	own, shared := h.namespaces()
	var reads []func()
	do := func(read func()) { reads = append(reads, read) }
	for _, l := range h.to.clusterWide() {
		do(func() { h.list(ctx, l, "", true) })
	}
	for _, ns := range own {
		for _, l := range slices.Concat(h.to.ownKinds(ns), h.to.sharedKinds(ns)) {
			do(func() { h.list(ctx, l, ns, true) })
		}
	}
	for _, ns := range shared {
		for _, l := range h.to.sharedKinds(ns) {
			do(func() { h.list(ctx, l, ns, false) })
		}
	}
	for _, pod := range h.chosen() {
		do(func() { h.logs(ctx, &pod) })
		do(func() { h.metrics(ctx, &pod) })
		if slices.Contains([]string{"gateway", "route"}, pod.Labels[report.ComponentLabel]) { // they have state in the network of their host
			do(func() { h.hostState(ctx, &pod) })
		}
	}
	report.Each(reads, readsAtOnce, func(read func()) { read() })
}

// judge adds the findings of check and the status.
func (h *harvest) judge(version string) {
	findings := report.Check(h.snap)
	h.add("check.txt", report.CheckText(findings), nil)
	text, err := yaml.Marshal(report.Summarize(h.snap))
	h.add("status.yaml", string(text), err)
	server := h.to.server
	if u, err := url.Parse(server); err == nil {
		u.User = nil
		server = u.String()
	}
	h.add("about.txt", fmt.Sprintf("taken: %s\ncluster: %s\nnamespace of liqod: %s\nAPI server: %s, %s\nliqod of this command: %s\n",
		h.snap.Taken.UTC().Format(time.RFC3339), h.snap.ClusterID, h.snap.Namespace, server, h.snap.Kubernetes, version), nil)
	for what, err := range h.snap.Unread {
		h.add("check: "+what, "", err)
	}
}

// namespaces returns the namespaces of liqod and its peers, and those that are offloaded, here
// or by peers.
func (h *harvest) namespaces() (own, shared []string) {
	own = append(report.Names(h.snap.Tenants, func(ns *corev1.Namespace) string { return ns.Name }), h.snap.Namespace)
	shared = h.snap.OffloadedNamespaces()
	for _, m := range h.snap.Maps {
		if m.Labels[offloadingv1beta1.ReplicatedLabel] != "true" || m.Namespace != corev1beta1.TenantNamespace(m.Labels[corev1beta1.RemoteClusterIDLabel]) {
			continue
		}
		for _, twin := range m.Status.CurrentMapping {
			shared = append(shared, twin.RemoteNamespace)
		}
	}
	slices.Sort(own)
	slices.Sort(shared)
	return slices.Compact(own), slices.DeleteFunc(slices.Compact(shared), func(ns string) bool { return slices.Contains(own, ns) })
}

// secrets adds the names of the Secrets of liqod, and learns their values, which are removed
// from all files.
func (h *harvest) secrets(ctx context.Context) {
	own, _ := h.namespaces()
	for _, ns := range own {
		list, err := h.to.kube.CoreV1().Secrets(ns).List(ctx, metav1.ListOptions{})
		name := "namespaces/" + ns + "/secrets.yaml"
		if err != nil {
			h.add(name, "", err)
			continue
		}
		views := make([]secretView, 0, len(list.Items))
		for i := range list.Items {
			h.redactor.learn(&list.Items[i])
			views = append(views, viewOfSecret(&list.Items[i]))
		}
		text, err := yaml.Marshal(views)
		h.add(name, string(text), err)
	}
}

// list adds all objects of a kind, of a namespace or of the cluster.
func (h *harvest) list(ctx context.Context, l lister, namespace string, own bool) {
	name := "cluster/" + l.file + ".yaml"
	if namespace != "" {
		name = "namespaces/" + namespace + "/" + l.file + ".yaml"
	}
	var objects []any
	err := pager.New(l.list).EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		if len(objects) == mostObjects {
			return fmt.Errorf("only the first %d objects are in the archive", mostObjects)
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		prune(content, own)
		objects = append(objects, content)
		return err
	})
	if err != nil && len(objects) == 0 {
		h.add(name, "", err)
		return
	}
	text, failed := yaml.Marshal(map[string]any{"items": objects})
	h.add(name, string(text), errors.Join(err, failed))
}

// chosen returns the pods of liqod of which logs are read: of each role the first by name, up
// to the limit.
func (h *harvest) chosen() []corev1.Pod {
	pods := slices.SortedFunc(slices.Values(h.snap.RolePods), func(a, b corev1.Pod) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) })
	seen := map[string]int{}
	var out []corev1.Pod
	for _, pod := range pods {
		role := pod.Labels[report.ComponentLabel]
		if pod.Labels[offloadingv1beta1.VirtualNodeLabel] != "" {
			role = "vkubelet"
		}
		if seen[role]++; seen[role] <= h.flags.mostPods {
			out = append(out, pod)
		}
	}
	for role, n := range seen {
		if n > h.flags.mostPods {
			h.add("pods of role "+role, "", fmt.Errorf("%d of %d are left out: --max-pods", n-h.flags.mostPods, n))
		}
	}
	return out
}

func folder(pod *corev1.Pod) string { return "pods/" + pod.Namespace + "/" + pod.Name + "/" }

// logs adds the logs of the containers of a pod, also of those before the last restart.
func (h *harvest) logs(ctx context.Context, pod *corev1.Pod) {
	restarted := map[string]bool{}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		restarted[s.Name] = s.RestartCount > 0
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		options := corev1.PodLogOptions{Container: c.Name, Timestamps: true, TailLines: ptr.To(h.flags.lines), LimitBytes: ptr.To[int64](mostLog)}
		if h.flags.since > 0 {
			options.SinceSeconds = ptr.To(int64(max(h.flags.since, time.Second) / time.Second))
		}
		h.log(ctx, pod, c.Name+".log", options)
		if restarted[c.Name] {
			options.Previous = true
			h.log(ctx, pod, c.Name+".previous.log", options)
		}
	}
}

func (h *harvest) log(ctx context.Context, pod *corev1.Pod, name string, options corev1.PodLogOptions) {
	stream, err := h.to.kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &options).Stream(ctx)
	if err != nil {
		h.add(folder(pod)+name, "", err)
		return
	}
	text, err := io.ReadAll(io.LimitReader(stream, mostLog))
	h.add(folder(pod)+name, string(text), errors.Join(err, stream.Close()))
}

// metrics adds what the health server of a pod says.
func (h *harvest) metrics(ctx context.Context, pod *corev1.Pod) {
	port := strconv.Itoa(report.HealthPort(pod))
	for _, file := range []string{"metrics", "readyz", "livez"} {
		text, err := h.to.kube.CoreV1().Pods(pod.Namespace).ProxyGet("http", pod.Name, port, file, nil).DoRaw(ctx)
		h.add(folder(pod)+file+".txt", string(text[:min(len(text), mostState)]), err)
	}
}

// hostState adds the state of the network of a pod.
func (h *harvest) hostState(ctx context.Context, pod *corev1.Pod) {
	name := folder(pod) + "host-state.txt"
	if h.to.exec == nil || len(pod.Spec.Containers) == 0 {
		h.add(name, "", errors.New("no command can be run in the pod"))
		return
	}
	out := &limitedBuffer{left: mostState}
	err := h.to.exec(ctx, pod.Namespace, pod.Name, pod.Spec.Containers[0].Name, []string{"/liqod", "host-state"}, out)
	h.add(name, out.String(), err)
}

// limitedBuffer keeps the first bytes that are written to it. It is safe for concurrent use.
type limitedBuffer struct {
	mu   sync.Mutex
	left int
	buf  bytes.Buffer
}

// Write implements io.Writer.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(p), b.left)
	b.left -= n
	b.buf.Write(p[:n])
	return len(p), nil
}

func (b *limitedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
