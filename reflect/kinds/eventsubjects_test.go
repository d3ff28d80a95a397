package kinds

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
)

func TestSubjectsOfPods(t *testing.T) {
	s := shopSite()
	pod := localPod(running)
	s.add(s.home.Tracker(), pod)
	s.there(pod, true, running)
	// A pod of the provider's own, beside a local one that waits.
	waits := localPod(uid("local-2"), func(p *corev1.Pod) { p.Name = "theirs" })
	s.add(s.home.Tracker(), waits)
	s.start(t)
	remote := kubetest.Get(t, s.remote.CoreV1().Pods("shop-rome"), "web")
	about := func(kind, name string, uid types.UID) corev1.ObjectReference {
		return corev1.ObjectReference{Kind: kind, Namespace: "shop-rome", Name: name, UID: uid}
	}
	home := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web", UID: "local-1"}
	require.Eventually(t, func() bool {
		_, ours, err := s.pods.Subject(t.Context(), "shop", about("Pod", "web", remote.UID))
		return err == nil && ours
	}, time.Minute, 10*time.Millisecond)
	for name, tc := range map[string]struct {
		namespace string
		remote    corev1.ObjectReference
		ours      bool
		err       error
	}{
		"ours":                             {"shop", about("Pod", "web", remote.UID), true, nil},
		"its ShadowPod":                    {"shop", about("ShadowPod", "web", "shadow-local-1"), true, nil},
		"a predecessor's":                  {"shop", about("Pod", "web", "remote-0"), false, ErrSubjectUnknown},
		"a predecessor's ShadowPod":        {"shop", about("ShadowPod", "web", "shadow-local-0"), false, ErrSubjectUnknown},
		"the provider's own":               {"shop", about("Pod", "other", "x"), false, nil},
		"the provider's own of that name":  {"shop", about("Pod", "theirs", "x"), false, ErrSubjectUnknown},
		"a namespace that is not open yet": {"bank", about("Pod", "web", remote.UID), false, errNotSynced},
	} {
		t.Run(name, func(t *testing.T) {
			got, ours, err := s.pods.Subject(t.Context(), tc.namespace, tc.remote)
			require.ErrorIs(t, err, tc.err)
			require.Equal(t, tc.ours, ours)
			if tc.ours {
				require.Equal(t, home, got)
			}
		})
	}
	// Its last events come when the pod has gone already.
	require.NoError(t, s.remote.CoreV1().Pods("shop-rome").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		tw := s.pods.twins.Get("shop")
		return tw.pods.Cached(tw.key("web")) == nil
	}, time.Minute, 10*time.Millisecond)
	got, ours, err := s.pods.Subject(t.Context(), "shop", about("Pod", "web", remote.UID))
	require.NoError(t, err)
	require.True(t, ours)
	require.Equal(t, home, got)
}

func partial(apiVersion, kind, namespace, name string, uid types.UID, labels map[string]string) runtime.Object {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiVersion, Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid, Labels: labels},
	}
}

func metadataOf(t *testing.T, failure error, objects ...runtime.Object) metadata.Interface {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	c := metadatafake.NewSimpleMetadataClient(scheme, objects...)
	c.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return failure != nil, nil, failure })
	return c
}

func TestSubjectsOfObjects(t *testing.T) {
	ours := map[string]string{offloadingv1beta1.OriginLabel: "rome", offloadingv1beta1.DestinationLabel: "milan"}
	service := func(labels map[string]string) runtime.Object {
		return partial("v1", "Service", "shop-rome", "web", "remote-1", labels)
	}
	atHome := partial("v1", "Service", "shop", "web", "local-1", nil)
	about := corev1.ObjectReference{Kind: "Service", Namespace: "shop-rome", Name: "web", UID: "remote-1"}
	changed := func(change func(*corev1.ObjectReference)) corev1.ObjectReference {
		out := about
		change(&out)
		return out
	}
	home := corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: "shop", Name: "web", UID: "local-1"}
	slice := corev1.ObjectReference{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice", Namespace: "shop", Name: "web", UID: "local-2"}
	shadow := partial("offloading.liqo.io/v1beta1", "ShadowEndpointSlice", "shop-rome", "web", "remote-2", ours)
	sliceAtHome := partial("discovery.k8s.io/v1", "EndpointSlice", "shop", "web", "local-2", nil)
	away := apierrors.NewServiceUnavailable("away")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "web", errors.New("no"))
	for name, tc := range map[string]struct {
		remote                 corev1.ObjectReference
		there, here            runtime.Object
		failsThere, failsAtUs  error
		reflectedByAnotherNode bool
		want                   corev1.ObjectReference
		err                    error
	}{
		"ours":                       {remote: about, there: service(ours), here: atHome, want: home},
		"not ours":                   {remote: about, there: service(nil), here: atHome},
		"another consumer's":         {remote: about, there: service(map[string]string{offloadingv1beta1.OriginLabel: "paris", offloadingv1beta1.DestinationLabel: "milan"}), here: atHome},
		"gone at home":               {remote: about, there: service(ours)},
		"gone in the provider":       {remote: about, here: atHome},
		"a predecessor's":            {remote: changed(func(r *corev1.ObjectReference) { r.UID = "remote-0" }), there: service(ours), here: atHome},
		"a kind of no concern":       {remote: changed(func(r *corev1.ObjectReference) { r.Kind = "Job" }), there: service(ours), here: atHome},
		"may not be read there":      {remote: about, there: service(ours), here: atHome, failsThere: forbidden},
		"may not be read at home":    {remote: about, there: service(ours), here: atHome, failsAtUs: forbidden},
		"the provider is away":       {remote: about, there: service(ours), here: atHome, failsThere: away, err: away},
		"home is away":               {remote: about, there: service(ours), here: atHome, failsAtUs: away, err: away},
		"another vkubelet's concern": {remote: about, there: service(ours), here: atHome, reflectedByAnotherNode: true, err: ErrSubjectOfAnother},
		"the root CA": {
			remote: corev1.ObjectReference{Kind: "ConfigMap", Namespace: "shop-rome", Name: "kube-root-ca.crt.rome", UID: "remote-4"},
			there:  partial("v1", "ConfigMap", "shop-rome", "kube-root-ca.crt.rome", "remote-4", ours),
			here:   partial("v1", "ConfigMap", "shop", "kube-root-ca.crt", "local-4", nil),
			want:   corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "kube-root-ca.crt", UID: "local-4"},
		},
		"a ShadowEndpointSlice": {
			remote: corev1.ObjectReference{Kind: "ShadowEndpointSlice", Namespace: "shop-rome", Name: "web", UID: "remote-2"}, there: shadow, here: sliceAtHome, want: slice,
		},
		"an EndpointSlice that one asks for": {
			remote: corev1.ObjectReference{Kind: "EndpointSlice", Namespace: "shop-rome", Name: "web", UID: "remote-3"}, there: shadow, here: sliceAtHome, want: slice,
		},
	} {
		t.Run(name, func(t *testing.T) {
			list := func(o runtime.Object) []runtime.Object {
				if o == nil {
					return nil
				}
				return []runtime.Object{o}
			}
			o := ObjectSubjects{
				Home: metadataOf(t, tc.failsAtUs, list(tc.here)...), Provider: metadataOf(t, tc.failsThere, list(tc.there)...),
				Origin: "rome", Destination: "milan", Reflects: func() bool { return !tc.reflectedByAnotherNode },
			}
			got, found, err := o.Subject(t.Context(), "shop", tc.remote)
			if tc.err != nil {
				require.ErrorIs(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
			require.Equal(t, tc.want.Name != "", found)
		})
	}
}
