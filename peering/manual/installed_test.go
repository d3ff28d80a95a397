package manual

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// TestInstalled: only the ConfigMap of liqod's chart counts as its configuration, because
// the commands put tokens where it says.
func TestInstalled(t *testing.T) {
	t.Parallel()
	configuration := func(namespace, config string, labels map[string]string) *corev1.ConfigMap {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "liqod", Labels: map[string]string{"app.kubernetes.io/name": "liqod"}},
			Data: map[string]string{"config.yaml": config}}
		for key, value := range labels {
			cm.Labels[key] = value
		}
		return cm
	}
	own := configuration("liqod", "clusterID: rome", nil)
	ofPeer := map[string]string{offloadingv1beta1.OriginLabel: "milan"}

	id, namespace, err := Installed(t.Context(), fake.NewClientset(own,
		configuration("a-milan", "clusterID: evil", ofPeer), configuration("b-milan", "{", ofPeer), configuration("c", "log: {level: debug}", nil)))
	require.NoError(t, err)
	require.Equal(t, "rome", id)
	require.Equal(t, "liqod", namespace)

	_, _, err = Installed(t.Context(), fake.NewClientset(own, configuration("app", "clusterID: evil", nil)))
	require.ErrorContains(t, err, "namespaces app and liqod are both labelled")

	_, _, err = Installed(t.Context(), fake.NewClientset(configuration("a-milan", "clusterID: evil", ofPeer)))
	require.ErrorContains(t, err, "not installed")
}
