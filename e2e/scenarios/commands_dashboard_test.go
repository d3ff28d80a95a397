package scenarios

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

// shownState is the part of the dashboard's state that this test reads.
type shownState struct {
	Cluster, Health, Trouble string
	Unread                   []struct{ Section, What string }
	Peers                    []struct {
		ID, Health, API string
		Pods            int
		Nodes           []struct {
			Bars []struct {
				Resource, Used string
				Percent        int
			}
		}
	}
	Namespaces []struct {
		Name   string
		Places []struct {
			Name string
			Pods int
		}
	}
	Hosted []struct {
		Peer, Namespace string
		Pods            int
	}
	Events []struct{ Object, Reason string }
}

// dashboard is a running command: where it serves the state, and the token for that.
type dashboard struct{ base, token string }

// dashboard starts liqod dashboard with the kubeconfig of an administrator. At the end of the
// test it is interrupted, and must end with code 0.
func (w *world) dashboard(t *testing.T, s *site.Site, args ...string) *dashboard {
	t.Helper()
	cmd := w.sites.Command(context.WithoutCancel(t.Context()), append([]string{"dashboard", "--every=1s", "--kubeconfig", s.Kubeconfig}, args...)...)
	out := must(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		require.NoError(t, cmd.Wait())
	})
	printed := bufio.NewReader(out)
	address := ""
	for address == "" {
		line := must(printed.ReadString('\n'))(t)
		if strings.Contains(line, "http://127.0.0.1:") {
			address = strings.TrimSpace(line)
		}
	}
	base, token, found := strings.Cut(address, "#token=")
	require.True(t, found, address)
	return &dashboard{base, token}
}

// shows returns a condition: the state passes a check.
func (d *dashboard) shows(check func(*shownState) error) func(context.Context) error {
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.base+"state", http.NoBody)
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+d.token)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		data, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			return errors.Join(fmt.Errorf("%s: %s", answer.Status, data), err)
		}
		var s shownState
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		if err := check(&s); err != nil {
			return fmt.Errorf("%w: %s", err, data)
		}
		return nil
	}
}

// testCommandDashboard reads the state that the page gets, from real API servers.
func testCommandDashboard(t *testing.T, w *world) {
	within(t, soon, "the dashboard of rome shows the pod in milan", w.dashboard(t, w.rome).shows(func(s *shownState) error {
		switch {
		case s.Cluster != "rome" || s.Health != "ok" || s.Trouble != "" || len(s.Unread) != 1 || s.Unread[0].Section != "traffic": // simulated pods serve no metrics
			return fmt.Errorf("rome is not healthy")
		case len(s.Peers) != 1 || s.Peers[0].ID != "milan" || s.Peers[0].API != "ok" || s.Peers[0].Pods != 1 || len(s.Peers[0].Nodes) != 1 || len(s.Peers[0].Nodes[0].Bars) < 3:
			return fmt.Errorf("milan is not shown with its pod and its capacity")
		case len(s.Namespaces) != 1 || !slices.Contains(s.Namespaces[0].Places, struct {
			Name string
			Pods int
		}{"milan", 1}):
			return fmt.Errorf("the pod of shop is not in milan")
		case len(s.Events) == 0:
			return fmt.Errorf("there are no events")
		}
		return nil
	}))
	within(t, soon, "the dashboard of milan shows the pod of rome", w.dashboard(t, w.milan).shows(func(s *shownState) error {
		return lab.Wrong(nil, len(s.Hosted) != 1 || s.Hosted[0].Peer != "rome" || s.Hosted[0].Namespace != "shop-rome" || s.Hosted[0].Pods != 1, "shop-rome is not shown with its pod")
	}))
	within(t, soon, "somebody without rights sees what is missing", w.dashboard(t, w.rome, "--as=nobody").shows(func(s *shownState) error {
		if s.Health == "ok" || len(s.Peers)+len(s.Namespaces)+len(s.Events) > 0 {
			return fmt.Errorf("too much is known")
		}
		for _, section := range []string{"clusters", "namespaces", "capacity", "hosted", "parts", "events"} {
			if !slices.ContainsFunc(s.Unread, func(u struct{ Section, What string }) bool { return u.Section == section }) {
				return fmt.Errorf("section %s says nothing", section)
			}
		}
		return nil
	}))
}
