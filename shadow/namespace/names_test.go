package namespace

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
)

func (w *world) changeNamespace(name string, change func(*corev1.Namespace)) {
	w.t.Helper()
	ns := w.namespace(name).DeepCopy()
	change(ns)
	kubetest.Update(w.t, w.core.CoreV1().Namespaces(), ns)
}

// TestTwinNames: a peer gets namespaces with its id in their names, those that the
// administrator lists. Otherwise it could take the name of a
// product before that is installed, and read its Secrets.
func TestTwinNames(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), plainNamespace("theirs"),
			replica(map[string]string{"web": "web-rome", "product": "cert-manager", "listed": "team-a", "shop": "shop", "foreign": "theirs"})).providerAs("milan", "team-*")
		w.accepted("web", "listed")
		for original, twin := range map[string]string{"product": "cert-manager", "shop": "shop"} {
			for _, why := range []string{"name a namespace " + twin, "end in -rome", "controller.twinNames of milan"} {
				w.backsOff(original, why)
			}
			_, err := w.core.CoreV1().Namespaces().Get(t.Context(), twin, metav1.GetOptions{})
			require.True(t, apierrors.IsNotFound(err))
		}
		w.backsOff("foreign", "was not made for cluster rome")
		require.Equal(t, strings.ReplaceAll(w.current("product").Message, "cert-manager", "theirs"), w.current("foreign").Message, "a peer does not learn which namespaces there are")
	})
}

// TestTwinNamesFollowTheTrust: the names that a peer may give follow its ForeignCluster, at once;
// a twin that it has stays.
func TestTwinNamesFollowTheTrust(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenantNamespace("rome"), romeCluster(romeUser), replica(map[string]string{"web": "web"}))
		clusters := w.liqoInformers.Core().V1beta1().ForeignClusters().Lister()
		w.providerWith(func(cfg *MapsConfig) {
			cfg.TwinNames = func(peer string) []string {
				fc, err := clusters.Get(peer)
				require.NoError(t, err)
				return map[corev1beta1.Trust][]string{corev1beta1.TrustOrganisation: {"*"}}[fc.Spec.Trust]
			}
		})
		w.backsOff("web", "end in -rome")
		trust := func(trust corev1beta1.Trust) {
			fc := romeCluster(romeUser)
			fc.Spec.Trust = trust
			kubetest.Update(t, w.liqo.CoreV1beta1().ForeignClusters(), fc)
		}
		trust(corev1beta1.TrustOrganisation)
		w.accepted("web")
		trust(corev1beta1.TrustStrict)
		w.accepted("web")
	})
}
