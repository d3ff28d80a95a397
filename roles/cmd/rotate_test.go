package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/liqod/liqod/netfabric/host"
)

// announce writes what the gateway with a number announces.
func announce(t *testing.T, kube *fake.Clientset, number int32, change func(*host.Announcement)) {
	t.Helper()
	say, now, seconds := host.Announcement{Addresses: []string{"192.0.2.13"}}, metav1.NowMicro(), int32(15)
	say.Name, say.Number = "gw", number
	change(&say)
	text := must(json.Marshal(say))
	gvr := coordinationv1.SchemeGroupVersion.WithResource("leases")
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: host.LeaseName(int(number)), Labels: map[string]string{host.GatewayKey: "true"}, Annotations: map[string]string{host.GatewayKey: string(text)}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &say.Name, RenewTime: &now, LeaseDurationSeconds: &seconds},
	}
	if kube.Tracker().Update(gvr, lease, "liqod") != nil {
		require.NoError(t, kube.Tracker().Add(lease))
	}
}

// The command asks each gateway for another key than the one that it has, and prints how far each
// is until all have one.
func TestRotation(t *testing.T) {
	t.Parallel()
	kube := fake.NewClientset()
	for _, number := range []int32{1, 2} {
		announce(t, kube, number, func(a *host.Announcement) { a.PublicKey = "old" })
	}
	asked, looks, away := map[string]string{}, 0, false
	kube.PrependReactor("patch", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
		patch := a.(clienttesting.PatchAction)
		asked[patch.GetName()] = string(patch.GetPatch())
		return true, nil, nil
	})
	kube.PrependReactor("list", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		looks++
		switch {
		case away:
			return true, nil, errors.New("away")
		case looks == 3:
			announce(t, kube, 2, func(a *host.Announcement) {
				a.PublicKey, a.NextPublicKey, a.Waits = "old", "new", []string{"gw of milan"}
			})
		case looks == 4:
			return true, nil, errors.New("away")
		case looks == 5:
			announce(t, kube, 2, func(a *host.Announcement) { a.PublicKey, a.NextPublicKey = "old", "new" })
		case looks == 6:
			announce(t, kube, 2, func(a *host.Announcement) { a.PublicKey = "new" })
		}
		return false, nil, nil
	})
	var out bytes.Buffer
	c, leases := &commands{every: time.Millisecond}, kube.CoordinationV1().Leases("liqod")
	require.NoError(t, c.replaceKeys(t.Context(), leases, []int32{2, 2}, &out))
	require.Equal(t, map[string]string{"liqod-gateway-2": `{"metadata":{"annotations":{"networking.liqo.io/rotate-key":"old"}}}`}, asked)
	require.Equal(t, `gateway 2: asked to replace its key
gateway 2: it waits until its next key is accepted by gw of milan
gateway 2: its next key is accepted by all peers
gateway 2: its key is new
`, out.String())

	require.ErrorContains(t, c.replaceKeys(t.Context(), leases, []int32{3}, &out), "there is no gateway 3")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, c.replaceKeys(ctx, leases, nil, &out), "the keys of gateways 1, 2 are not replaced yet")
	require.Len(t, asked, 2)
	away = true
	require.ErrorContains(t, c.replaceKeys(t.Context(), leases, nil, &out), "listing the Leases of gateways: away")
	away = false
	leases = kube.CoordinationV1().Leases("other")
	require.ErrorContains(t, c.replaceKeys(t.Context(), leases, nil, &out), "no gateway of this cluster has announced itself")
}
