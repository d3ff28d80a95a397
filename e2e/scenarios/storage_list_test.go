package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/liqod/liqod/e2e/site"
)

// listed is a volume of storage list -o json.
type listed struct {
	Namespace, Claim, Owner, Where, Phase, Why, Get, Delete string
}

// lists returns the volumes of a claim that storage list shows in a cluster.
func (w *world) lists(ctx context.Context, at *site.Site, namespace, claim string) ([]listed, error) {
	cmd := w.sites.Command(ctx, "storage", "list", "-o", "json", "--kubeconfig", at.Kubeconfig)
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var list struct{ Volumes []listed }
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, fmt.Errorf("reading %s: %w", out, err)
	}
	var of []listed
	for _, v := range list.Volumes {
		if v.Namespace == namespace && v.Claim == claim {
			of = append(of, v)
		}
	}
	return of, nil
}

// listedAs waits until storage list shows a cluster's only volume of a claim in a phase.
func (w *world) listedAs(t *testing.T, at *site.Site, namespace, claim, phase string) listed {
	t.Helper()
	var is listed
	within(t, 30*time.Second, fmt.Sprintf("%s lists %s/%s as %s", at.Name, namespace, claim, phase), func(ctx context.Context) error {
		all, err := w.lists(ctx, at, namespace, claim)
		if err != nil {
			return err
		}
		if len(all) != 1 || all[0].Phase != phase {
			return fmt.Errorf("%+v", all)
		}
		is = all[0]
		return nil
	})
	return is
}

// pastes runs the commands of a text of storage list that have some words, each in the cluster
// that the text says.
func (w *world) pastes(t *testing.T, at *site.Site, text, only string) {
	t.Helper()
	w.paste(t, faultCase{at: at, only: only}, strings.Split(text, "\n"))
}
