package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/e2e/site"
)

// streamed is what the command stream of the test image prints.
type streamed struct {
	Sent, Received int64
	Holes          []hole
}

// hole is a time in which nothing came back.
type hole struct {
	Began  time.Time
	Length time.Duration
}

// plannedPause is the longest time without a packet where another gateway carries on, and the one in use
// ends by itself.
const plannedPause = 200 * time.Millisecond

// longest returns the longest hole.
func (s streamed) longest() (out time.Duration) {
	for _, h := range s.Holes {
		out = max(out, h.Length)
	}
	return out
}

// replicasGateways takes the gateway of rome that milan uses away, again and again, while a pod
// sends a datagram each millisecond. Both gateways carry packets, so the other one goes on:
// after the end of a process that nobody has announced when its silence is noticed, and else
// at once. Each time the gateway takes its number, and after a while the packets, again. With -all the
// times without a packet have limits.
func replicasGateways(t *testing.T, w replicasWorld) {
	ctx := t.Context()
	pods, err := w.pods(ctx, replicasNamespace)
	require.NoError(t, err)
	i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Spec.NodeName == "rome-1" })
	j := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Spec.NodeName == "milan" })
	require.True(t, i >= 0 && j >= 0)
	from, to := pods[i], pods[j]
	rounds := 1
	if os.Getenv("LAB_LONG") != "" {
		rounds = 10
	}
	for what, bound := range map[string]time.Duration{"killed": 2 * time.Second, "deleted": plannedPause} {
		var gaps []time.Duration
		for range rounds {
			gateway := w.gatewayInUse(t)
			got := make(chan streamed, 1)
			failed := make(chan error, 1)
			go func() {
				said, err := w.rome.Exec(ctx, replicasNamespace, from.Name, "stream", "udp://"+to.Status.PodIP+":8080", "15s")
				var s streamed
				failed <- errors.Join(err, json.Unmarshal([]byte(said), &s))
				got <- s
			}()
			// The stream flows before the gateway is taken away.
			within(t, longest, "the pods reach each other", func(ctx context.Context) error { return w.reach(ctx, from.Name, "udp://"+to.Status.PodIP+":8080/10") })
			switch what {
			case "killed":
				node := w.full.Node(w.rome.Cluster, gateway.Spec.NodeName)
				_, err := node.Exec(ctx, "sh", "-c", `for p in /proc/[0-9]*; do tr '\0' ' ' < $p/cmdline 2>/dev/null | grep -q "^/liqod --role=gateway" && kill -9 ${p#/proc/}; done; true`)
				require.NoError(t, err)
			case "deleted":
				require.NoError(t, w.rome.Client().CoreV1().Pods(site.Namespace).Delete(ctx, gateway.Name, metav1.DeleteOptions{}))
			}
			require.NoError(t, <-failed)
			s := <-got
			gaps = append(gaps, s.longest())
			within(t, longest, "both gateways are ready again", w.complete)
			t.Logf("gateway %s %s, now in use: %s; %d datagrams sent, %d came back, longest hole %s", gateway.Name, what, w.gatewayInUse(t).Name, s.Sent, s.Received, s.longest())
		}
		slices.Sort(gaps)
		t.Logf("gateway %s, longest hole of each of %d: median %s, worst %s", what, rounds, gaps[len(gaps)/2], gaps[len(gaps)-1])
		if *all {
			require.LessOrEqual(t, gaps[len(gaps)-1], bound, "a gateway is %s", what)
		}
	}
	w.whole(t, "after the gateways were taken away")
}

// gatewayInUse waits until milan uses a gateway of rome that is preferred for it, and returns
// the pod.
func (w replicasWorld) gatewayInUse(t *testing.T) (out corev1.Pod) {
	t.Helper()
	within(t, longest, "milan uses a gateway of rome", func(ctx context.Context) error {
		list, err := w.milan.Liqod().NetworkingV1beta1().Connections("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, c := range list.Items {
			if len(c.Status.Gateways) == 0 {
				continue
			}
			pod, err := w.rome.Client().CoreV1().Pods(site.Namespace).Get(ctx, c.Status.Gateways[0].PeerGateway, metav1.GetOptions{})
			if err != nil {
				return err
			}
			out = *pod
			return nil
		}
		return fmt.Errorf("no Connection of milan names a gateway")
	})
	return out
}
