package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/host"
	"github.com/liqod/liqod/peering/join"
)

func (c *commands) rotateKeys() *cobra.Command {
	cmd := &cobra.Command{Use: "rotate-keys [NUMBER...]", Short: "Replace the WireGuard keys of gateways"}
	timeout := cmd.Flags().Duration("timeout", 5*time.Minute, "how long to wait; 0 is without end")
	conn := c.connection(cmd.Flags())
	cmd.RunE = interruptible(limited(timeout, func(cmd *cobra.Command, args []string) error {
		var numbers []int32
		for _, arg := range args {
			number, err := strconv.ParseInt(arg, 10, 32)
			if err != nil || number < 1 {
				return Usagef("%q is not the number of a gateway: 1, 2 and so on are accepted", arg)
			}
			numbers = append(numbers, int32(number))
		}
		to, err := c.connect(conn)
		if err != nil {
			return err
		}
		namespace, err := join.Namespace(cmd.Context(), to.kube)
		if err != nil {
			return explain(err)
		}
		return explain(c.replaceKeys(cmd.Context(), to.kube.CoordinationV1().Leases(namespace), numbers, cmd.OutOrStdout()))
	}))
	return cmd
}

// replaceKeys has gateways replace their keys, and waits until they have, or ctx is done. Without numbers it is
// all gateways.
func (c *commands) replaceKeys(ctx context.Context, leases coordinationv1client.LeaseInterface, numbers []int32, out io.Writer) error {
	before, err := announcements(ctx, leases)
	if err != nil {
		return err
	}
	left := slices.Sorted(maps.Keys(before))
	if len(numbers) > 0 {
		left = slices.Compact(slices.Sorted(slices.Values(numbers)))
	}
	for _, number := range left {
		if _, ok := before[number]; !ok {
			return fmt.Errorf("there is no gateway %d: no Lease has announced it", number)
		}
	}
	if len(left) == 0 {
		return errors.New("no gateway of this cluster has announced itself")
	}
	for _, number := range left {
		if err := replaceKey(ctx, leases, before[number]); err != nil {
			return err
		}
	}
	_, err = c.until(ctx, out, func(ctx context.Context) (look, error) {
		now, err := announcements(ctx, leases)
		if err != nil {
			return look{}, nil // the next look may succeed
		}
		seen := look{lines: map[string]string{}}
		left = slices.DeleteFunc(left, func(number int32) (done bool) {
			seen.lines[fmt.Sprintf("gateway %d", number)], done = keyState(before[number], now[number])
			return done
		})
		seen.done = len(left) == 0
		return seen, nil
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w; the keys of gateways %s are not replaced yet. What was asked for stands: run the command again to go on waiting", context.Cause(ctx), strings.Trim(strings.ReplaceAll(fmt.Sprint(left), " ", ", "), "[]"))
	}
	return err
}

// announcements returns what the gateways that hold their Leases announce, by number.
func announcements(ctx context.Context, leases coordinationv1client.LeaseInterface) (map[int32]host.Announcement, error) {
	list, err := leases.List(ctx, metav1.ListOptions{LabelSelector: host.GatewayKey + "=true"})
	if err != nil {
		return nil, fmt.Errorf("listing the Leases of gateways: %w", err)
	}
	out := map[int32]host.Announcement{}
	for _, l := range list.Items {
		var a host.Announcement
		err := json.Unmarshal([]byte(l.Annotations[host.GatewayKey]), &a)
		held := l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity == a.Name
		if err == nil && held && a.PublicKey != "" && l.Name == host.LeaseName(int(a.Number)) {
			out[a.Number] = a
		}
	}
	return out, nil
}

// replaceKey names the key to replace on the Lease of its gateway. With another key, nothing is asked of
// the gateway any more.
func replaceKey(ctx context.Context, leases coordinationv1client.LeaseInterface, a host.Announcement) error {
	body, err := json.Marshal(store.Patch{"metadata": store.Patch{"annotations": store.Patch{host.RotateKey: a.PublicKey}}})
	if err != nil {
		return fmt.Errorf("encoding an annotation: %w", err)
	}
	name := host.LeaseName(int(a.Number))
	if _, err := leases.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("writing annotation %s of Lease %s: %w", host.RotateKey, name, err)
	}
	return nil
}

// keyState describes how far a gateway is.
func keyState(before, now host.Announcement) (line string, done bool) {
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
