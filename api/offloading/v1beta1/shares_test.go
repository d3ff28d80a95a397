package v1beta1

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestShares(t *testing.T) {
	ns := func(made, list string) *corev1.Namespace {
		annotations := map[string]string{AcceptedForAnnotation: "liqo-tenant-rome/milan", AcceptTwinSharesAnnotation: list}
		if made != "" {
			annotations[ManagedByNamespaceMapAnnotation] = made
		}
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: annotations}}
	}
	require.True(t, Shares(ns("liqo-tenant-rome/milan", ""), ShareSecrets), "its own namespace")
	require.False(t, Shares(ns("", ""), ShareSecrets))
	require.False(t, Shares(ns("", "Services"), ShareSecrets))
	require.True(t, Shares(ns("", " Services, Secrets,"), ShareSecrets))
	require.False(t, Shares(ns("", "Secrets,Everything"), ShareSecrets), "a list that is wrong shares nothing")
	_, err := SharesOf(ns("", "secrets"))
	require.ErrorContains(t, err, `"secrets": a list of Secrets,PersistentVolumeClaims,Services is accepted`)
	require.Contains(t, NotShared(ns("", ""), ShareClaims), "liqo.io/accept-twin-shares")
}
