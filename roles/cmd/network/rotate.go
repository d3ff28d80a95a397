package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/host"
)

// Rotation says which gateways of a cluster replace their WireGuard keys.
type Rotation struct {
	// Leases are those of the namespace of liqod.
	Leases coordinationv1client.LeaseInterface
	// Numbers of gateways; empty: all.
	Numbers []int32
	// Every is the time between two looks at the Leases.
	Every time.Duration
	Out   io.Writer
}

// Run has each gateway replace its key, and waits until all have, or ctx is done.
func (c Rotation) Run(ctx context.Context) error {
	before, err := c.read(ctx)
	if err != nil {
		return err
	}
	var left []int32
	for _, number := range c.Numbers {
		if _, ok := before[number]; !ok {
			return fmt.Errorf("there is no gateway %d: no Lease has announced it", number)
		}
	}
	for number, a := range before {
		if len(c.Numbers) > 0 && !slices.Contains(c.Numbers, number) {
			continue
		}
		if err := c.ask(ctx, a); err != nil {
			return err
		}
		left = append(left, number)
	}
	if len(left) == 0 {
		return errors.New("no gateway of this cluster has announced itself")
	}
	slices.Sort(left)
	return c.wait(ctx, before, left)
}

// read returns what gateways announce, by number.
func (c Rotation) read(ctx context.Context) (map[int32]host.Announcement, error) {
	list, err := c.Leases.List(ctx, metav1.ListOptions{LabelSelector: host.GatewayKey + "=true"})
	if err != nil {
		return nil, fmt.Errorf("listing the Leases of gateways: %w", err)
	}
	out := map[int32]host.Announcement{}
	for _, l := range list.Items {
		if a, ok := announced(l); ok {
			out[a.Number] = a
		}
	}
	return out, nil
}

// announced returns what the gateway that holds a Lease announces.
func announced(l coordinationv1.Lease) (a host.Announcement, ok bool) {
	err := json.Unmarshal([]byte(l.Annotations[host.GatewayKey]), &a)
	held := l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity == a.Name
	return a, err == nil && held && a.PublicKey != "" && l.Name == host.LeaseName(int(a.Number))
}

// ask names the key to replace on the Lease of its gateway. With another key, nothing is asked of
// the gateway any more.
func (c Rotation) ask(ctx context.Context, a host.Announcement) error {
	body, err := json.Marshal(store.Patch{"metadata": store.Patch{"annotations": store.Patch{host.RotateKey: a.PublicKey}}})
	if err != nil {
		return fmt.Errorf("encoding an annotation: %w", err)
	}
	name := host.LeaseName(int(a.Number))
	if _, err := c.Leases.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("writing annotation %s of Lease %s: %w", host.RotateKey, name, err)
	}
	return nil
}

// wait prints the state of each gateway when it changes.
func (c Rotation) wait(ctx context.Context, before map[int32]host.Announcement, left []int32) error {
	said := map[int32]string{}
	err := wait.PollUntilContextCancel(ctx, c.Every, true, func(ctx context.Context) (bool, error) {
		now, err := c.read(ctx)
		if err != nil {
			return false, nil // the next look may succeed
		}
		for _, number := range slices.Clone(left) {
			line, done := state(before[number], now[number])
			if said[number] != line {
				said[number] = line
				if _, err := fmt.Fprintf(c.Out, "gateway %d: %s\n", number, line); err != nil {
					return false, fmt.Errorf("printing: %w", err)
				}
			}
			if done {
				left = slices.DeleteFunc(left, func(n int32) bool { return n == number })
			}
		}
		return len(left) == 0, nil
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w; the keys of gateways %s are not replaced yet. What was asked for stands: run the command again to go on waiting", context.Cause(ctx), strings.Trim(strings.ReplaceAll(fmt.Sprint(left), " ", ", "), "[]"))
	}
	return err
}

// state describes how far a gateway is.
func state(before, now host.Announcement) (line string, done bool) {
	switch {
	case now.PublicKey == "":
		return "it does not hold its number now", false
	case now.PublicKey != before.PublicKey:
		return fmt.Sprintf("its key is %s", now.PublicKey), true
	case now.NextPublicKey == "":
		return "asked to replace its key", false
	case len(now.Waits) == 0:
		return "its next key is accepted by all peers", false
	}
	return "it waits until its next key is accepted by " + strings.Join(now.Waits, ", "), false
}
