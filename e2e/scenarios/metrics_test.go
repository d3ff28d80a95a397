package scenarios

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// metrics returns the metrics of a process.
func metrics(ctx context.Context, p *lab.Process) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Flag("server.address")+"/metrics", nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// measures returns a condition: the metrics of a process have lines that match.
func measures(p *lab.Process, lines ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		text, err := metrics(ctx, p)
		for _, line := range lines {
			if err == nil && !regexp.MustCompile("(?m)^"+line+"$").MatchString(text) {
				err = fmt.Errorf("there is no line %s in\n%s", line, text)
			}
		}
		return err
	}
}

// testMetrics: the roles measure peers, virtual nodes, pods, namespaces and the webhook; and
// nothing of their libraries appears among the loops.
func testMetrics(t *testing.T, w *world) {
	w.fixture(t, "measured")
	kubetest.Create(t, w.rome.Client().AppsV1().Deployments("measured"), deployment("web", 2))
	within(t, 3*time.Minute, "2 pods run in the provider", w.available("web", "measured", 2))
	const some = "[1-9][0-9.e+]*"
	vkubelet := *w.rome.VKubelet("milan")
	within(t, 3*time.Minute, "the consumer's controller measures", measures(w.rome.Controller,
		`liqod_peer_up{check="APIServerStatus",peer="milan"} 1`, `liqod_peer_unknown{check="APIServerStatus",peer="milan"} 0`,
		`liqod_peer_probe_seconds_count{peer="milan",result="ok"} `+some, `liqod_virtual_node_ready{peer="milan",virtual_node="milan"} 1`,
		`liqod_namespaces{direction="outgoing",peer="milan",phase="Accepted"} `+some, `liqod_lease_leading{role="controller"} 1`,
	))
	within(t, 3*time.Minute, "the vkubelet measures", measures(vkubelet,
		`liqod_offloaded_pods{peer="milan",phase="Running",ready="true",virtual_node="milan",workload_namespace="measured"} 2`,
		`liqod_virtual_node_allocatable{peer="milan",resource="cpu",virtual_node="milan"} `+some,
		`liqod_virtual_node_requested{peer="milan",resource="pods",virtual_node="milan"} `+some,
		`liqod_loop_lag_seconds_count{loop="pods"} `+some, `liqod_certificate_expiry_timestamp_seconds{certificate="kubelet",peer=""} `+some,
	))
	within(t, 3*time.Minute, "the provider's controller measures", measures(w.milan.Controller,
		`liqod_peer_pods{peer="[^"]+",phase="Running"} `+some, `liqod_namespaces{direction="incoming",peer="[^"]+",phase="Accepted"} `+some,
	))
	within(t, 3*time.Minute, "the webhook measures", measures(w.rome.Webhook,
		`liqod_webhook_seconds_count{result="changed",webhook="/mutate/pod"} `+some, `liqod_certificate_expiry_timestamp_seconds{certificate="webhook",peer=""} `+some,
	))
	for name, p := range map[string]*lab.Process{"controller": w.rome.Controller, "vkubelet": vkubelet, "webhook": w.rome.Webhook, "provider": w.milan.Controller} {
		text := must(metrics(t.Context(), p))(t)
		for _, loop := range regexp.MustCompile(`loop="([^"]*)"`).FindAllStringSubmatch(text, -1) {
			require.Regexp(t, `^[a-z][A-Za-z0-9-]*$`, loop[1], "%s: it is a loop of a library", name)
		}
	}
}
