package endpoints

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reasons"
)

// given returns the facts of a shadow and an EndpointSlice in a twin namespace.
func given(shadow *offloadingv1beta1.ShadowEndpointSlice, slice *discoveryv1.EndpointSlice, mods ...func(*facts)) facts {
	f := facts{shadow: shadow, slice: slice, namespace: twin(), now: testTime()}
	if shadow != nil {
		f.want, f.refused = forge(shadow, testRules(), true)
	}
	for _, mod := range mods {
		mod(&f)
	}
	return f
}

func TestDecide(t *testing.T) {
	shadow := newShadow()
	gone := newShadow(func(s *offloadingv1beta1.ShadowEndpointSlice) { s.DeletionTimestamp = new(ago(0)) })
	partly := newShadow(endpointsOf(at("10.100.1.5"), at("127.0.0.1")))
	fqdn := newShadow(func(s *offloadingv1beta1.ShadowEndpointSlice) {
		s.Spec.Template.AddressType = discoveryv1.AddressTypeFQDN
	})
	v6 := func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeIPv6 }
	edited := func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil }
	live := func(f *facts) { f.live = true }
	early := func(f *facts) { f.notBefore = f.now.Add(7 * time.Second) }
	undone := func(f *facts) { f.undone = f.now.Add(7 * time.Second) }
	down := func(f *facts) { f.want, f.refused = forge(f.shadow, testRules(), false) }
	elsewhere := func(f *facts) { f.namespace = twin(func(ns *corev1.Namespace) { ns.Labels = nil }) }
	ending := func(f *facts) {
		f.namespace = twin(func(ns *corev1.Namespace) { ns.DeletionTimestamp = new(ago(0)) })
	}
	for name, tc := range map[string]struct {
		f       facts
		want    action
		because string // reason of the condition
	}{
		"nothing there":               {given(nil, nil), action{verb: nothing, keep: true}, ""},
		"new":                         {given(shadow, nil), action{verb: createSlice}, ""},
		"as wanted":                   {given(shadow, sliceOf(shadow)), action{verb: nothing}, ""},
		"as wanted, to look at again": {given(shadow, sliceOf(shadow), func(f *facts) { f.again = time.Second }), action{verb: nothing, after: time.Second}, ""},
		"edited":                      {given(shadow, sliceOf(shadow, edited)), action{verb: updateSlice}, ""},
		"edited by admission":         {given(shadow, sliceOf(shadow, edited), func(f *facts) { f.kept = true }), action{verb: nothing}, ""},
		"edited, refused a moment ago": {given(shadow, sliceOf(shadow, edited), early),
			action{verb: nothing, keep: true, after: 7 * time.Second}, ""},
		"refused a moment ago":         {given(shadow, nil, early), action{verb: nothing, keep: true, after: 7 * time.Second}, ""},
		"refused, an unknown health":   {given(shadow, nil, early, func(f *facts) { f.again = time.Second }), action{verb: nothing, keep: true, after: time.Second}, ""},
		"undone":                       {given(shadow, sliceOf(shadow, edited), undone), action{verb: nothing, after: 7 * time.Second}, ""},
		"undone, an unknown health":    {given(shadow, sliceOf(shadow, edited), undone, func(f *facts) { f.again = time.Second }), action{verb: nothing, after: time.Second}, ""},
		"undone, partly refused":       {given(partly, sliceOf(partly, edited), undone), action{verb: nothing, after: 7 * time.Second}, offloadingv1beta1.ReasonEndpointsRefused},
		"undone, and refused":          {given(shadow, sliceOf(shadow, edited), undone, func(f *facts) { f.notBefore = f.now.Add(8 * time.Second) }), action{verb: nothing, keep: true, after: 8 * time.Second}, ""},
		"undone, of one that is down":  {given(shadow, sliceOf(shadow), undone, down), action{verb: deleteSlice, keep: true, after: 7 * time.Second}, ""},
		"undone, and as wanted":        {given(shadow, sliceOf(shadow), undone), action{verb: nothing}, ""},
		"deleted by others":            {given(shadow, nil, undone), action{verb: nothing, after: 7 * time.Second}, ""},
		"new, partly refused":          {given(partly, nil), action{verb: createSlice}, offloadingv1beta1.ReasonEndpointsRefused},
		"as wanted, partly refused":    {given(partly, sliceOf(partly)), action{verb: nothing}, offloadingv1beta1.ReasonEndpointsRefused},
		"a name":                       {given(fqdn, nil), action{verb: nothing}, offloadingv1beta1.ReasonEndpointsRefused},
		"became a name":                {given(fqdn, sliceOf(shadow)), action{verb: deleteSlice, confirm: true}, offloadingv1beta1.ReasonEndpointsRefused},
		"became a name, live":          {given(fqdn, sliceOf(shadow), live), action{verb: deleteSlice}, offloadingv1beta1.ReasonEndpointsRefused},
		"another address type":         {given(shadow, sliceOf(shadow, v6)), action{verb: deleteSlice, keep: true}, ""},
		"being deleted":                {given(shadow, sliceOf(shadow, deleting)), action{verb: nothing, keep: true}, ""},
		"shadow gone":                  {given(nil, sliceOf(shadow)), action{verb: deleteSlice, confirm: true, keep: true}, ""},
		"shadow gone, live":            {given(nil, sliceOf(shadow), live), action{verb: deleteSlice, keep: true}, ""},
		"shadow gone, as was shown":    {given(nil, sliceOf(shadow), func(f *facts) { f.left = true }), action{verb: deleteSlice, keep: true}, ""},
		"shadow gone, slice going":     {given(nil, sliceOf(shadow, deleting), live), action{verb: nothing, keep: true}, ""},
		"shadow gone, record lost":     {given(nil, sliceOf(shadow, func(s *discoveryv1.EndpointSlice) { s.Annotations = nil }), live), action{verb: deleteSlice, keep: true}, ""},
		"shadow being deleted":         {given(gone, sliceOf(shadow), live), action{verb: deleteSlice, keep: true}, ""},
		"shadow gone, somebody else's": {given(nil, sliceOf(shadow, foreign), live), action{verb: nothing, keep: true}, ""},
		"predecessor's":                {given(shadow, sliceOf(shadow, predecessors)), action{verb: deleteSlice, confirm: true, keep: true}, ""},
		"predecessor's, going":         {given(shadow, sliceOf(shadow, predecessors, deleting)), action{verb: nothing, keep: true}, ""},
		"somebody else's":              {given(shadow, sliceOf(shadow, foreign)), action{verb: nothing, retry: true}, offloadingv1beta1.ReasonEndpointSliceCollision},
		"somebody else's, looked at":   {given(shadow, sliceOf(shadow, foreign), early), action{verb: nothing, keep: true, after: 7 * time.Second}, ""},
		"our label lost":               {given(shadow, sliceOf(shadow, func(s *discoveryv1.EndpointSlice) { s.Labels = nil }), live), action{verb: updateSlice}, ""},
		"our label and record lost":    {given(shadow, sliceOf(shadow, func(s *discoveryv1.EndpointSlice) { s.Labels, s.Annotations = nil, nil })), action{verb: nothing, retry: true}, offloadingv1beta1.ReasonEndpointSliceCollision},
		"taken over by another": {given(shadow, sliceOf(shadow, func(s *discoveryv1.EndpointSlice) {
			s.OwnerReferences = []metav1.OwnerReference{{Kind: "X", UID: "x", Controller: new(true)}}
		})), action{verb: nothing, retry: true}, offloadingv1beta1.ReasonEndpointSliceCollision},
		"not a twin":                  {given(shadow, nil, elsewhere), action{verb: nothing}, reasons.NotTwinNamespace},
		"no longer a twin":            {given(shadow, sliceOf(shadow), elsewhere, live), action{verb: deleteSlice}, reasons.NotTwinNamespace},
		"not a twin, somebody else's": {given(shadow, sliceOf(shadow, foreign), elsewhere), action{verb: nothing, retry: true}, offloadingv1beta1.ReasonEndpointSliceCollision},
		"another origin":              {given(newShadow(labelled(offloadingv1beta1.OriginLabel, "paris")), nil), action{verb: nothing}, reasons.ForeignOrigin},
		"another origin, later":       {given(newShadow(labelled(offloadingv1beta1.OriginLabel, "paris")), sliceOf(shadow)), action{verb: deleteSlice, confirm: true}, reasons.ForeignOrigin},
		"namespace not known":         {given(shadow, nil, func(f *facts) { f.namespace = nil }), action{verb: nothing}, reasons.NotTwinNamespace},
		"namespace not known yet": {given(newShadow(func(s *offloadingv1beta1.ShadowEndpointSlice) { s.CreationTimestamp = ago(4 * time.Second) }), nil,
			func(f *facts) { f.namespace = nil }), action{verb: nothing, keep: true, after: 6 * time.Second}, ""},
		"shadow gone with its namespace": {given(nil, sliceOf(shadow), ending), action{verb: nothing, keep: true}, ""},
		"namespace going":                {given(shadow, nil, ending), action{verb: nothing, keep: true}, ""},
		"namespace going, still wanted":  {given(shadow, sliceOf(shadow, edited), ending), action{verb: updateSlice}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := decide(tc.f)
			reason := ""
			if got.condition != nil {
				reason = got.condition.Reason
				require.NotEmpty(t, got.condition.Message)
				require.EqualValues(t, 1, got.condition.ObservedGeneration)
				got.condition = nil
			}
			require.Equal(t, tc.because, reason)
			require.Equal(t, tc.want, got)
		})
	}
}
