package roles

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
)

// newRecorder returns a recorder of events in the process's own cluster, and a function that
// stops it. It lasts for the process and not for a term of leadership, and the fence of the
// role's Lease does not apply: an event is no state that another replica acts on, and says
// when this process saw something. client-go retries an event that its transport refuses for
// minutes, keeps all later ones waiting, and drops them when the recorder stops.
func newRecorder(h home, source corev1.EventSource) (record.EventRecorder, func()) {
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, corev1beta1.AddToScheme, offloadingv1beta1.AddToScheme} {
		utilruntime.Must(add(kinds)) // kinds known at compile time
	}
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: h.plain.kube.CoreV1().Events("")})
	return brief{broadcaster.NewRecorder(kinds, source)}, broadcaster.Shutdown
}

// brief truncates the messages of events, because many of them quote a peer. The API
// server does not enforce the maximum length of the API for these events.
type brief struct{ record.EventRecorder }

// Event implements record.EventRecorder.
func (b brief) Event(object runtime.Object, eventtype, reason, message string) {
	b.EventRecorder.Event(object, eventtype, reason, store.ClipMessage(message))
}

// Eventf implements record.EventRecorder.
func (b brief) Eventf(object runtime.Object, eventtype, reason, format string, args ...any) {
	b.Event(object, eventtype, reason, fmt.Sprintf(format, args...))
}

// AnnotatedEventf implements record.EventRecorder.
func (b brief) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventtype, reason, format string, args ...any) {
	b.EventRecorder.AnnotatedEventf(object, annotations, eventtype, reason, "%s", store.ClipMessage(fmt.Sprintf(format, args...)))
}
