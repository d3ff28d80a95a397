package cmd

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
)

// pictures is the folder for new pictures of the documentation; without it none are made.
const pictures = "LIQOD_PICTURES"

// output has the text that a command has printed so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

var pageAddress = regexp.MustCompile(`http://127\.0\.0\.1:\d+/#token=\w+`)

// served runs liqod dashboard until the test ends, and returns the address that it prints.
func (c *cluster) served(t *testing.T, args ...string) string {
	t.Helper()
	printed := &output{}
	root := rootOf(c.commands(), printed, append([]string{"dashboard", "--every=1s"}, args...))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	require.Eventually(t, func() bool { return pageAddress.MatchString(printed.String()) }, time.Minute, 10*time.Millisecond, "%s", printed)
	return pageAddress.FindString(printed.String())
}

// The port is on the loopback address, and is free again after the command.
func TestDashboardCommand(t *testing.T) {
	t.Parallel()
	var address string
	t.Run("serves", func(t *testing.T) {
		address, _, _ = strings.Cut(paint(t).cluster(t).served(t), "#")
		answer := must(http.Get(address))
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusOK, answer.StatusCode)
	})
	require.Error(t, errOf(http.Get(address)))
}

func TestDashboardOnATakenPort(t *testing.T) {
	t.Parallel()
	taken := must((&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0"))
	t.Cleanup(func() { _ = taken.Close() })
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	newCluster().fails(t, ExitProblem, "another --port is accepted", "dashboard", "--port="+port)
}

// Applications of which a read was cut short are read again for the next page.
func TestDashboardReadsAgain(t *testing.T) {
	t.Parallel()
	c := paint(t).cluster(t)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	c.core.PrependReactor("list", "networkpolicies", func(clienttesting.Action) (bool, runtime.Object, error) {
		if ctx.Err() != nil {
			return false, nil, nil
		}
		leave()
		return true, nil, ctx.Err()
	})
	s := &shownCluster{c: &commands{program: "liqod"}, to: c.clients()}
	_, err := s.Observe(ctx)
	require.NoError(t, err)
	require.Error(t, ctx.Err())
	snap := must(s.Observe(t.Context()))
	require.NotEmpty(t, snap.Applications)
	for namespace, has := range snap.Applications {
		require.Empty(t, has.Unread, namespace)
	}
}

// The page in a real browser, one test after the other: a browser takes a whole processor.
func TestDashboardInABrowser(t *testing.T) {
	t.Parallel()
	b := browse(t)
	for name, test := range map[string]func(*testing.T, *tab){
		"States":    testStates,
		"Hostile":   testHostileTexts,
		"Outage":    testOutage,
		"Redraw":    testRedraw,
		"Paused":    testPaused,
		"Forbidden": testForbidden,
		"Token":     testToken,
		"Many":      testMany,
		"Filter":    testFilter,
		"Copy":      testCopy,
		"Differ":    testDifferences,
	} {
		t.Run(name, func(t *testing.T) { test(t, b.tab(t)) })
	}
}

// testStates also makes the pictures of the documentation.
func testStates(t *testing.T, b *tab) {
	for _, tc := range []struct {
		name, health string
		world        func(*testing.T) *painted
		says         []string
	}{
		{"healthy", "Healthy", paint, []string{
			"None was found.", "milan: 9 pods, 9 ready", "rome (here): 6 pods, 6 ready", "11", "Started container render", "bounded by 1 Quota", "shop/cart-0", "cluster turin"}},
		{"providing", "Healthy", providing, []string{"Given to paris", "2 in trouble", "first render-0 ImagePullBackOff: container main: registry.paris.example.com/render:7: not found"}},
		{"provider-down", "Unhealthy", providerDown, []string{
			"milan: API server", "no answer within 1s", "API down", "network down", "milan: 9 pods, 0 ready", "turin: 3 pods, 3 ready"}},
		{"gateway-down", "Unhealthy", gatewayDown, []string{
			"Installation: role gateway", "milan, network; paris, network; turin, network", "no gateway of cluster rome is running", "API up", "network unknown", "0 of 2 replicas are ready", "(14 times)"}},
	} {
		b.open(tc.world(t).cluster(t).served(t))
		b.until(`document.title === "` + tc.health + `: rome – liqod"`)
		b.until(`/^milan[.0-9]+ [kM]B.s[.0-9]+ [kM]B.s12ms2 %–$/.test(document.querySelector("#traffic tbody tr").textContent)`)
		text := value[string](b, "document.body.textContent")
		for _, words := range tc.says {
			require.Contains(t, text, words)
		}
		require.NotContains(t, value[string](b, "location.href"), "token", "the address bar shows no token")
		if tc.name == "providing" {
			b.photograph(tc.name, "#hosted", 1366, 720)
		} else {
			b.photograph(tc.name, "body", 1366, 1560)
		}
		for _, scheme := range []string{"dark", "light"} {
			b.scheme(scheme)
			requireAccessible(t, b)
		}
		b.size(360, 740)
		require.LessOrEqual(t, value[int](b, "document.documentElement.scrollWidth"), 360, "the page fits a small screen")
		require.Empty(t, value[[]string](b, `[...document.querySelectorAll(".scroll")].filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.dataset.says)`), "each table fits too")
		require.Zero(t, value[int](b, `[...document.querySelectorAll("tbody td")].filter((e) => e.getClientRects().length && !getComputedStyle(e, "::before").content.includes(e.dataset.column)).length`), "each cell has the name of its column")
		requireAccessible(t, b)
		if tc.name == "provider-down" {
			b.photograph("phone", "body", 360, 1240)
		}
		b.size(1366, 900)
	}
}

// photograph makes a picture of the documentation, of the part that begins with an element.
func (b *tab) photograph(name, from string, width, height int) {
	b.t.Helper()
	dir := os.Getenv(pictures)
	if dir == "" {
		return
	}
	top := value[int](b, `Math.max(0, Math.round(document.querySelector("`+from+`").getBoundingClientRect().top + scrollY) - 12)`)
	height = min(value[int](b, "document.documentElement.scrollHeight")-top, height)
	require.NoError(b.t, os.WriteFile(filepath.Join(dir, "dashboard-"+name+".png"), b.picture(top, width, height), 0o644))
}

// testFilter also makes the picture of a cluster with many problems.
func testFilter(t *testing.T, b *tab) {
	b.open(troubled(t).cluster(t).served(t))
	b.until(`document.querySelector("#announce").textContent === "Cluster rome: 16 problems"`)
	b.photograph("problems", "body", 1366, 900)
	filter := func(words string) {
		t.Helper()
		_, err := b.run(`((f) => { f.value = ` + strconv.Quote(words) + `; f.dispatchEvent(new Event("input")) })(document.querySelector("#filter"))`)
		require.NoError(t, err)
	}
	count := func(what string) int { return value[int](b, `document.querySelectorAll("`+what+`").length`) }
	require.Equal(t, 16, count("#problems li"))
	filter("team-2 REASON2")
	require.Equal(t, 1, count("#problems li"))
	require.Equal(t, 1, count("#namespaces tbody th"+":not(details th)"), "the namespace of the pod")
	require.Equal(t, "work-2", value[string](b, `document.querySelector("#namespaces details[open] tbody").rows[0].cells[0].textContent`))
	require.Equal(t, 1, value[int](b, `document.querySelector("#namespaces details[open] tbody").rows.length`), "the pod alone is shown at once")
	require.Equal(t, 1, count(".topology .node"), "the peer whose checks name the pod")
	require.Contains(t, value[string](b, `document.querySelector("#parts").textContent`), "Nothing here matches the filter.")
	require.Contains(t, value[string](b, "document.title"), "Unhealthy", "the filter does not change the health")
	requireAccessible(t, b)
	filter("turin")
	require.Equal(t, 1, count(".topology .node"))
	filter(" ")
	require.Equal(t, 16, count("#problems li"))
	require.Zero(t, count("#namespaces details[open]"))
}

// The page lists what of a namespace does not follow its pods.
func testDifferences(t *testing.T, b *tab) {
	p := paint(t)
	p.core = append(p.core, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deny-all"}})
	b.open(p.cluster(t).served(t))
	b.until(`document.title === "Healthy: rome – liqod"`)
	require.Contains(t, value[string](b, `document.querySelector("#namespaces").textContent`), "shop – 18 pods, 1 difference in providers")
	b.until(`document.querySelectorAll("#namespaces details").forEach((d) => d.open = true), document.querySelector("#namespaces .inside li")?.textContent.startsWith("NetworkPolicy deny-all: is not sent to providers")`)
}

// The commands of a fix are copied one by one.
func testCopy(t *testing.T, b *tab) {
	b.call("Browser.grantPermissions", map[string]any{"permissions": []string{"clipboardReadWrite", "clipboardSanitizedWrite"}, "browserContextId": b.context}, nil)
	b.open(gatewayDown(t).cluster(t).served(t))
	b.until(`document.querySelectorAll("#problems .copy").length > 1`)
	command := value[string](b, `document.querySelector("#problems .command code").textContent`)
	require.Regexp(t, "^kubectl .*", command)
	b.until(`(document.querySelector("#problems .copy").focus(), document.hasFocus())`)
	b.press(" ", " ", 32)
	// The button says so as well, until its section is drawn again: here each second.
	b.until(`document.querySelector("#announce").textContent === "Copied"`)
	require.Equal(t, command, value[string](b, `navigator.clipboard.readText()`))
}

// contrasts returns all texts with too little contrast to their background (WCAG AA).
const contrasts = `(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = (color) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; } return [255, 255, 255, 255]; };
  const bad = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !e.checkVisibility() || e.closest(".hidden, .skip, svg, noscript")) continue;
    const style = getComputedStyle(e);
    const [a, b] = [light(rgba(style.color)), light(behind(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) bad.push(walk.currentNode.data.slice(0, 40) + " " + ((a + 0.05) / (b + 0.05)).toFixed(2));
  }
  return bad;
})()`

func requireAccessible(t *testing.T, b *tab) {
	t.Helper()
	require.Empty(t, value[[]string](b, contrasts))
	for what, unnamed := range map[string]string{
		"sections without a heading":  `[...document.querySelectorAll("section")].filter((s) => !document.getElementById(s.getAttribute("aria-labelledby"))?.textContent).length`,
		"tables without a caption":    `[...document.querySelectorAll("table")].filter((t) => !t.caption?.textContent).length`,
		"heads without a scope":       `document.querySelectorAll("th:not([scope])").length`,
		"pictures without words":      `[...document.querySelectorAll("svg, img")].filter((e) => !e.closest("[aria-hidden=true]") && e.getAttribute("alt") !== "" && !e.getAttribute("aria-label")).length`,
		"buttons without a name":      `[...document.querySelectorAll("button, a, summary")].filter((e) => !e.textContent.trim()).length`,
		"more than one first heading": `document.querySelectorAll("h1").length - 1`,
		"missing landmarks":           `4 - ["header", "nav", "main", "footer"].filter((x) => document.querySelector(x)).length`,
		"ids that are there twice":    `(() => { const ids = [...document.querySelectorAll("[id]")].map((e) => e.id); return ids.length - new Set(ids).size })()`,
	} {
		require.Zero(t, value[int](b, unnamed), what)
	}
	var tree struct {
		Nodes []struct {
			Ignored bool
			Role    struct{ Value string }
			Name    struct{ Value string }
		}
	}
	b.call("Accessibility.getFullAXTree", nil, &tree)
	for _, node := range tree.Nodes {
		switch node.Role.Value {
		case "button", "link", "region", "image", "table", "DisclosureTriangle":
			if !node.Ignored {
				require.NotEmpty(t, node.Name.Value, "a %s has no name for a screen reader", node.Role.Value)
			}
		}
	}
}

// hostile is a text that a peer may write: markup, another line, other directions of
// text, and a lot of it.
const hostile = `<img src=x onerror="document.title='taken'"><script>document.title='taken'</script></style>` + "\n\u202egnp.exe\x1b[31m" + `" onmouseover="document.title='taken'`

// Texts of a cluster never become markup, script or style of the page.
func testHostileTexts(t *testing.T, b *tab) {
	p := paint(t)
	p.says("milan", p.condition(corev1beta1.ConditionAPIServer, metav1.ConditionFalse, "Bad", hostile), p.condition(corev1beta1.ConditionReady, metav1.ConditionFalse, "Bad", hostile))
	p.event("shop", "Pod", hostile, hostile, hostile, hostile, corev1.EventTypeWarning, time.Second, 3)
	p.pod("shop", hostile, "", "1", "1Gi").Status = corev1.PodStatus{Phase: corev1.PodPending, Reason: hostile, Message: hostile + strings.Repeat("x", 1<<20)}
	objects(p.liqod, func(fc *corev1beta1.ForeignCluster) { fc.Status.Version = hostile })
	objects(p.core, func(n *corev1.Node) {
		n.Status.Allocatable[corev1.ResourceName(hostile)] = n.Status.Allocatable[corev1.ResourcePods]
	})
	p.peer(hostile, corev1beta1.RoleType(hostile))
	p.twin(hostile, hostile, 1)
	p.namespace(hostile, offloadingv1beta1.PodOffloadingStrategy(hostile), hostile)
	b.open(p.cluster(t).served(t))
	b.until(`document.title === "Unhealthy: rome – liqod"`)
	b.until(`document.querySelectorAll("details").forEach((d) => d.open = true), document.querySelectorAll("details .inside:not(:empty)").length > 4`)
	require.Zero(t, value[int](b, `document.querySelectorAll("main img, main script, main style, main iframe, main [onmouseover], main [onerror], body > script").length`))
	require.Equal(t, 1, value[int](b, `document.scripts.length`))
	require.Equal(t, "Unhealthy: rome – liqod", value[string](b, "document.title"))
	require.Positive(t, value[int](b, `[...document.querySelectorAll("#events td")].filter((c) => c.textContent.includes("<img src=x onerror")).length`), "it is there as text")
	require.Zero(t, value[int](b, `[...document.body.textContent].filter((c) => "\u202e\u001b".includes(c)).length`))
	require.Less(t, value[int](b, `document.body.textContent.length`), 200_000, "a long text is cut")
	b.size(360, 740)
	require.LessOrEqual(t, value[int](b, "document.documentElement.scrollWidth"), 360)
	b.size(1366, 900)
	// The policy of the page holds, even where the script of the page had a hole.
	require.Equal(t, "TypeError", value[string](b, `(() => { try { document.body.innerHTML = "<p>"; return "done" } catch (e) { return e.name } })()`))
	require.Equal(t, "refused", value[string](b, `fetch("http://127.0.0.1:1/", {mode: "no-cors"}).then(() => "done", () => "refused")`))
	require.False(t, value[bool](b, `(() => { const s = document.createElement("script"); try { s.text = "window.taken = 1"; document.body.append(s) } catch (e) {}; return Boolean(window.taken) })()`))
}

// switchable makes an API server fail while down is set.
func (c *cluster) switchable() (down *atomic.Bool) {
	down = &atomic.Bool{}
	c.core.PrependReactor("get", "version", func(clienttesting.Action) (bool, runtime.Object, error) {
		return down.Load(), nil, apierrors.NewServiceUnavailable("etcd is away")
	})
	return down
}

// In an outage the page says from when its state is, and that the state of now is unknown.
func testOutage(t *testing.T, b *tab) {
	c := paint(t).cluster(t)
	down := c.switchable()
	down.Store(true)
	b.open(c.served(t))
	b.until(`document.querySelector("#notice").textContent.includes("etcd is away") && document.title === "Unknown: liqod – liqod"`)
	require.NotContains(t, value[string](b, "document.body.textContent"), "This cluster has no peers")
	down.Store(false)
	b.until(`document.title === "Healthy: rome – liqod" && document.querySelector("#notice").textContent === ""`)
	down.Store(true)
	b.until(`document.title === "Unknown: rome – liqod" && document.querySelector("main").hasAttribute("data-old")`)
	notice := value[string](b, `document.querySelector("#notice").textContent`)
	b.photograph("lost", "body", 1366, 760)
	require.Contains(t, notice, "etcd is away")
	require.Contains(t, notice, "What follows is the state of ")
	require.Contains(t, value[string](b, `document.querySelector("#clusters").textContent`), "milan", "the last state is still there")
	down.Store(false)
	b.until(`document.title === "Healthy: rome – liqod" && !document.querySelector("main").hasAttribute("data-old")`)
}

// A change is drawn, and the page keeps the focus and the parts that are open.
func testRedraw(t *testing.T, b *tab) {
	c := paint(t).cluster(t)
	b.open(c.served(t))
	b.until(`document.title === "Healthy: rome – liqod"`)
	b.until(`(document.querySelector("#namespaces details summary").focus(), document.activeElement.tagName === "SUMMARY")`)
	b.press("Enter", "\r", 13)
	b.until(`document.querySelector("#namespaces details[open] .inside").textContent.includes("render-0")`)
	pod := kubetest.Get(t, c.core.CoreV1().Pods("batch"), "render-0")
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}}}
	kubetest.UpdateStatus(t, c.core.CoreV1().Pods("batch"), pod)
	b.until(`document.title === "Unhealthy: rome – liqod" && document.querySelector("#announce").textContent === "Cluster rome: 1 problem"`)
	require.Contains(t, value[string](b, `document.querySelector("#namespaces details[open]").textContent`), "first render-0 ImagePullBackOff: container main: no such image")
	require.True(t, value[bool](b, `document.activeElement.tagName === "SUMMARY" && document.activeElement.parentElement.open`))
}

// While the page is paused or hidden, nobody asks the cluster.
func testPaused(t *testing.T, b *tab) {
	c := paint(t).cluster(t)
	b.open(c.served(t))
	b.until(`document.querySelector("#live").textContent.startsWith("Live")`)
	requests := func() int { return len(c.core.Actions()) + len(c.liqod.Actions()) }
	requireCalm := func() {
		t.Helper()
		calm, last := 0, 0
		require.Eventually(t, func() bool { // for three seconds; there were requests in each second
			if calm++; requests() != last {
				calm, last = 0, requests()
			}
			return calm > 60
		}, time.Minute, 50*time.Millisecond)
	}
	b.until(`(document.querySelector("#pause").focus(), document.activeElement.id === "pause")`)
	b.press(" ", " ", 32)
	b.until(`document.querySelector("#live").textContent.startsWith("Paused, as of ") && document.querySelector("#pause").getAttribute("aria-pressed") === "true"`)
	requireCalm()
	b.press(" ", " ", 32)
	b.until(`document.querySelector("#live").textContent.startsWith("Live")`)
	hide := func(hidden string) {
		_, err := b.run(`Object.defineProperty(document, "hidden", { value: ` + hidden + `, configurable: true }); document.dispatchEvent(new Event("visibilitychange"))`)
		require.NoError(t, err)
	}
	hide("true")
	b.until(`document.querySelector("#live").textContent.startsWith("Paused")`)
	requireCalm()
	hide("false")
	b.until(`document.querySelector("#live").textContent.startsWith("Live")`)
}

// Without the token the page shows nothing. With it a reload works, and a copied address has
// none.
func testToken(t *testing.T, b *tab) {
	address := paint(t).cluster(t).served(t)
	bare, _, _ := strings.Cut(address, "#")
	for _, wrong := range []string{bare, bare + "#token=WRONG", bare + "?token=" + strings.SplitN(address, "=", 2)[1]} {
		b.open("about:blank")
		b.until(`location.href === "about:blank"`)
		b.open(wrong)
		b.until(`document.querySelector("#notice").textContent.includes("lacks the token")`)
		require.NotContains(t, value[string](b, "document.body.textContent"), "milan")
	}
	b.open(address)
	b.until(`document.title === "Healthy: rome – liqod" && location.href === "` + bare + `"`)
	b.call("Page.reload", nil, nil)
	b.until(`document.title === "Healthy: rome – liqod" && location.href === "` + bare + `"`)
	_, err := b.run(`document.querySelector("nav a[href='#events']").click()`)
	require.NoError(t, err)
	b.call("Page.reload", nil, nil)
	b.until(`document.title === "Healthy: rome – liqod" && location.hash === "#events"`)
}

// Many peers, namespaces and pods stay readable.
func testMany(t *testing.T, b *tab) {
	p := paint(t)
	for i := range 30 {
		p.provider(fmt.Sprintf("cluster-%02d", i), corev1beta1.RoleProvider, "16", "64Gi", "v1.36.3")
		namespace := fmt.Sprintf("team-%02d", i)
		p.namespace(namespace, offloadingv1beta1.PodsLocalAndRemote, fmt.Sprintf("cluster-%02d", i))
		p.pods(namespace, "work", fmt.Sprintf("cluster-%02d", i), 5+100*(i/29), "100m", "64Mi") // 105 in the last
	}
	p.says("cluster-29", p.condition(corev1beta1.ConditionAPIServer, metav1.ConditionFalse, corev1beta1.ReasonAPIServerNotReady, "no answer within 1s"))
	b.open(p.cluster(t).served(t))
	b.until(`document.title === "Unhealthy: rome – liqod"`)
	require.Equal(t, 12, value[int](b, `document.querySelectorAll(".topology .node").length`))
	text := value[string](b, `document.querySelector("#clusters").textContent`)
	require.Contains(t, text, "The picture shows 12 of 33 peers; the table has all.")
	require.Equal(t, "cluster-29", value[string](b, `document.querySelector(".topology .node .name").textContent`), "those in trouble come first")
	b.until(`document.querySelectorAll("#namespaces details").forEach((d) => d.open = true), document.querySelectorAll("#namespaces .inside:not(:empty)").length === 32`)
	require.Contains(t, value[string](b, `document.querySelector("#namespaces").textContent`), "5 pods more; those in trouble come first.")
	requireAccessible(t, b)
}

// Each section names the objects that the user may not read.
func testForbidden(t *testing.T, b *tab) {
	c := paint(t).cluster(t)
	c.forbid("list", "foreignclusters", "namespaceoffloadings", "virtualnodes", "events", "nodes", "pods")
	b.open(c.served(t))
	b.until(`document.title === "Unknown: rome – liqod"`)
	for section, what := range map[string]string{"clusters": "ForeignClusters", "namespaces": "NamespaceOffloadings", "capacity": "VirtualNodes", "events": "Events of namespace liqod"} {
		text := value[string](b, `document.querySelector("#`+section+`").textContent`)
		require.Contains(t, text, what+" cannot be shown: ")
		for _, no := range []string{"This cluster has no peers", "No namespace is offloaded", "There is no virtual node", "There are no events"} {
			require.NotContains(t, text, no)
		}
	}
}

// The page reads each pod once: the lists of pods of all namespaces leave out the offloaded ones,
// which are read whole.
func TestDashboardReadsPodsOnce(t *testing.T) {
	t.Parallel()
	c := paint(t).cluster(t)
	commands := c.commands()
	to := c.clients()
	lists := func() (out []string) {
		for _, action := range c.core.Actions() {
			if list, ok := action.(clienttesting.ListAction); ok && action.GetResource().Resource == "pods" {
				restrictions := list.GetListRestrictions()
				out = append(out, strings.TrimSpace(list.GetNamespace()+" "+restrictions.Fields.String()+restrictions.Labels.String()))
			}
		}
		c.core.ClearActions()
		slices.Sort(out)
		return out
	}
	snapshot := must((&shownCluster{c: commands, to: to}).Observe(t.Context()))
	const others = "metadata.namespace!=batch,metadata.namespace!=shop,"
	hosted := offloadingv1beta1.ManagedByLabel + "=" + offloadingv1beta1.ManagedByShadowPod
	require.Equal(t, []string{"batch", hosted, offloadingv1beta1.VirtualNodeLabel, "liqod " + installed, others + "spec.nodeName=", others + "spec.nodeName=milan", others + "spec.nodeName=turin", "shop"}, lists())
	require.Len(t, snapshot.PodsOf("shop"), 18)
	require.Len(t, snapshot.PodsOf("batch"), 5)

	_, err := commands.read(t.Context(), to, "", false)
	require.NoError(t, err)
	require.Equal(t, []string{hosted, offloadingv1beta1.VirtualNodeLabel, "liqod " + installed, "spec.nodeName=", "spec.nodeName=milan", "spec.nodeName=turin"}, lists(), "status needs no pods on nodes of its own cluster")
}
