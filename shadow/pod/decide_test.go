package pod

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/shadow/rules"
)

const (
	always    = corev1.RestartPolicyAlways
	onFailure = corev1.RestartPolicyOnFailure
	never     = corev1.RestartPolicyNever
)

// row is one set of facts and the action that must follow. want.verb and want.confirm are
// always compared, the other fields only if set.
type row struct {
	shadow *offloadingv1beta1.ShadowPod
	pod    *corev1.Pod
	lost   *corev1.Pod
	more   func(*facts)
	want   verb
	asks   bool // the decision is first confirmed by live reads
	phase  corev1.PodPhase
	reason string
}

func live(f *facts) { f.live = true }

func (r row) check(t *testing.T) {
	t.Helper()
	f := facts{shadow: r.shadow, pod: r.pod, lost: r.lost, namespace: twin(), now: testTime()}
	if r.more != nil {
		r.more(&f)
	}
	if f.shadow != nil && f.namespace != nil && f.refused == nil {
		want, err := forge(f.shadow, f.namespace, rules.Metadata{}, noHarden)
		require.NoError(t, err)
		f.want = want
	}
	got := decide(f)
	require.Equal(t, r.want, got.verb)
	require.Equal(t, r.asks, got.confirm)
	if r.phase != "" {
		require.Equal(t, r.phase, got.end.Phase)
	}
	if r.want == recordEnd {
		require.Equal(t, r.reason, got.end.Reason)
	}
	if r.want == setCondition {
		require.Equal(t, r.reason, got.condition.Reason)
		require.Equal(t, metav1.ConditionFalse, got.condition.Status)
		require.NotEmpty(t, got.condition.Message)
	}
	if r.want == wait {
		require.Positive(t, got.after)
	}
	// A decision on live facts needs no further confirmation.
	if got.confirm {
		f.live = true
		require.False(t, decide(f).confirm)
	}
}

func checkAll(t *testing.T, rows map[string]row) {
	for name, r := range rows {
		t.Run(name, func(t *testing.T) { t.Parallel(); r.check(t) })
	}
}

func TestDecideOnAnAbsentPod(t *testing.T) {
	a, n := newShadow(always), newShadow(never)
	checkAll(t, map[string]row{
		"a new one is created after a live look":        {shadow: a, want: createPod, asks: true},
		"an old one is created after a live look":       {shadow: newShadow(always, old), want: createPod, asks: true},
		"one that we have made a pod for":               {shadow: newShadow(always, old), more: func(f *facts) { leading(2 * time.Hour)(f); f.made = true }, want: createPod, asks: true},
		"an old one, made while we have led":            {shadow: newShadow(always, old), more: leading(2 * time.Hour), want: createPod},
		"an old one, made when we began to lead":        {shadow: newShadow(always, old), more: leading(time.Hour + freshFor), want: createPod, asks: true},
		"a new one, created after we began to lead":     {shadow: a, more: inTerm(2 * time.Second), want: createPod},
		"changed after we began to lead":                {shadow: newShadow(always, func(s *offloadingv1beta1.ShadowPod) { s.Generation = 2 }), more: inTerm(2 * time.Second), want: createPod, asks: true},
		"newer, but not by its time":                    {shadow: a, more: inTerm(time.Second), want: createPod, asks: true},
		"new by its time only":                          {shadow: a, more: leading(2 * time.Second), want: createPod, asks: true},
		"a new one that we have made a pod for":         {shadow: a, more: func(f *facts) { inTerm(2 * time.Second)(f); f.made = true }, want: createPod, asks: true},
		"a replacement, made while we have led":         {shadow: newShadow(always, old, replaced("pod-1")), more: leading(2 * time.Hour), want: createPod, asks: true},
		"one from the future, while we have led":        {shadow: newShadow(always, ofTheFuture), more: leading(time.Hour), want: createPod, asks: true},
		"a replacement is created after a live look":    {shadow: newShadow(always, replaced("pod-1")), want: createPod, asks: true},
		"live facts are enough":                         {shadow: newShadow(always, old), more: live, want: createPod},
		"an ended one is not created":                   {shadow: newShadow(always, old, ended(corev1.PodFailed)), want: nothing},
		"an ended Never is not created":                 {shadow: newShadow(never, old, ended(corev1.PodSucceeded)), want: nothing},
		"an ended one is not created, lost or not":      {shadow: newShadow(always, ended(corev1.PodFailed)), lost: podOf(a), want: nothing},
		"a loss is looked at live first":                {shadow: a, lost: podOf(a), want: recordLoss, asks: true},
		"a loss is recorded":                            {shadow: a, lost: podOf(a), more: live, want: recordLoss},
		"a recorded loss is made good":                  {shadow: newShadow(always, replaced("pod-1")), lost: podOf(a), want: createPod, asks: true},
		"a recorded loss, then another":                 {shadow: newShadow(always, replaced("pod-0")), lost: podOf(a), more: live, want: recordLoss},
		"evicted by the kubelet and gone: ended":        {shadow: a, lost: podOf(a, exited(137, time.Minute), reason("Evicted")), more: live, want: recordEnd, phase: corev1.PodFailed, reason: "Evicted"},
		"a Never torn from its finalizer while running": {shadow: n, lost: podOf(n, released), more: live, want: recordEnd, phase: corev1.PodFailed, reason: offloadingv1beta1.ReasonRemotePodLost},
		"no namespace":                                  {shadow: newShadow(always, old), more: func(f *facts) { f.namespace = nil }, want: setCondition, reason: reasons.NotTwinNamespace},
		"no namespace yet":                              {shadow: a, more: func(f *facts) { f.namespace = nil }, want: wait},
		"not a twin: no label":                          {shadow: a, more: func(f *facts) { f.namespace.Labels = nil }, want: setCondition, reason: reasons.NotTwinNamespace},
		"not a twin: no annotation":                     {shadow: a, more: func(f *facts) { f.namespace.Annotations = nil }, want: setCondition, reason: reasons.NotTwinNamespace},
		"another consumer's twin": {shadow: a, more: func(f *facts) {
			f.namespace.Labels[corev1beta1.RemoteClusterIDLabel] = "paris"
		}, want: setCondition, reason: reasons.ForeignOrigin},
		"no origin at all": {shadow: newShadow(always, func(s *offloadingv1beta1.ShadowPod) { s.Labels = nil }), want: setCondition, reason: reasons.ForeignOrigin},
		"the namespace is going": {shadow: a, more: func(f *facts) {
			at := ago(0)
			f.namespace.DeletionTimestamp = &at
		}, want: setCondition, reason: reasons.NamespaceTerminating},
		"refused by Harden":          {shadow: a, more: func(f *facts) { f.refused = errors.New("no") }, want: setCondition, reason: offloadingv1beta1.ReasonPodRefused},
		"refused a moment ago":       {shadow: a, more: func(f *facts) { f.notBefore = testTime().Add(time.Second) }, want: wait},
		"refused and due again":      {shadow: a, more: func(f *facts) { f.notBefore = testTime() }, want: createPod, asks: true},
		"nobody asks":                {want: nothing},
		"a ShadowPod that goes":      {shadow: newShadow(always, goes), want: nothing},
		"a ShadowPod that goes, old": {shadow: newShadow(always, old, goes), lost: podOf(a), want: nothing},
	})
}

// leading sets for how long this process has led.
func leading(d time.Duration) func(*facts) {
	return func(f *facts) { f.leadingSince = testTime().Add(-d) }
}

// inTerm is leading, for a ShadowPod with a newer resource version than all at its begin.
func inTerm(d time.Duration) func(*facts) {
	return func(f *facts) { leading(d)(f); f.newer = true }
}

func ofTheFuture(s *offloadingv1beta1.ShadowPod) { s.CreationTimestamp = ago(-time.Minute) }

func goes(s *offloadingv1beta1.ShadowPod) { at := ago(0); s.DeletionTimestamp = &at }

func TestDecideOnAPodThatLives(t *testing.T) {
	a, n := newShadow(always), newShadow(never)
	checkAll(t, map[string]row{
		"as wanted":                    {shadow: a, pod: podOf(a), want: nothing},
		"pending":                      {shadow: a, pod: podOf(a, pending), want: nothing},
		"as wanted, was refused":       {shadow: newShadow(always, denied("PodRefused")), pod: podOf(a), want: removeCondition},
		"label lost":                   {shadow: a, pod: podOf(a, func(p *corev1.Pod) { delete(p.Labels, "app") }), want: updatePod},
		"mark and owner lost":          {shadow: a, pod: podOf(a, orphaned, func(p *corev1.Pod) { delete(p.Labels, offloadingv1beta1.ManagedByLabel) }), want: setCondition, reason: offloadingv1beta1.ReasonPodCollision},
		"mark lost":                    {shadow: a, pod: podOf(a, func(p *corev1.Pod) { delete(p.Labels, offloadingv1beta1.ManagedByLabel) }), want: updatePod},
		"label of others":              {shadow: a, pod: podOf(a, func(p *corev1.Pod) { p.Labels["zone"] = "x" }), want: nothing},
		"image set by others":          {shadow: a, pod: podOf(a, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "mirror/img:1" }), want: nothing},
		"image changed at home":        {shadow: newShadow(always, image("img:2")), pod: podOf(a), want: updatePod},
		"debug containers asked for":   {shadow: newShadow(always, debug("a", "b")), pod: podOf(a), want: updatePod},
		"debug containers, one there":  {shadow: newShadow(always, debug("a", "b")), pod: podOf(a, hasDebug("a")), want: updatePod},
		"debug containers there":       {shadow: newShadow(always, debug("a")), pod: podOf(a, hasDebug("a")), want: nothing},
		"debug containers refused now": {shadow: newShadow(always, debug("a")), pod: podOf(a), more: func(f *facts) { f.notBefore = testTime().Add(1) }, want: wait},
		"debug containers of others":   {shadow: a, pod: podOf(a, hasDebug("theirs")), want: nothing},
		"a stale ShadowPod":            {shadow: a, pod: podOf(newShadow(always, image("img:2"))), want: nothing},
		"a change refused just now":    {shadow: newShadow(always, image("img:2")), pod: podOf(a), more: func(f *facts) { f.notBefore = testTime().Add(1) }, want: wait},
		"a change that Harden refuses": {shadow: a, pod: podOf(a), more: func(f *facts) { f.refused = errors.New("no") }, want: setCondition, reason: reasons.UpdateRefused},
		"namespace is no twin any more": {shadow: a, pod: podOf(a), more: func(f *facts) { f.namespace.Labels = nil },
			want: setCondition, reason: reasons.NotTwinNamespace},
		"of a lost one, not recorded":         {shadow: a, pod: podOf(a), lost: podOf(a, uidOf("pod-0")), want: recordLoss},
		"of a lost one, recorded":             {shadow: newShadow(always, replaced("pod-0")), pod: podOf(a), lost: podOf(a, uidOf("pod-0")), want: nothing},
		"of an earlier ShadowPod's":           {shadow: a, pod: podOf(a), lost: podOf(a, uidOf("pod-0"), ownedBy("shadow-0")), want: nothing},
		"of one that may not run again":       {shadow: n, pod: podOf(n), lost: podOf(n, uidOf("pod-0")), want: nothing},
		"ended Always":                        {shadow: a, pod: podOf(a, exited(1, 0), reason("Evicted")), want: recordEnd, phase: corev1.PodFailed, reason: "Evicted"},
		"ended Never":                         {shadow: n, pod: podOf(n, exited(0, 0)), want: recordEnd, phase: corev1.PodSucceeded},
		"ended and recorded":                  {shadow: newShadow(never, ended(corev1.PodSucceeded)), pod: podOf(n, exited(0, 0)), want: releasePod},
		"ended, recorded and released":        {shadow: newShadow(never, ended(corev1.PodSucceeded)), pod: podOf(n, exited(0, 0), released), want: nothing},
		"ended Always is not touched":         {shadow: newShadow(always, ended(corev1.PodFailed)), pod: podOf(a, exited(1, 0)), want: nothing},
		"marked by pod garbage collection":    {shadow: a, pod: podOf(a, garbageCollected), want: nothing},
		"marked by pod GC, Never":             {shadow: n, pod: podOf(n, garbageCollected), want: nothing},
		"somebody else's":                     {shadow: a, pod: podOf(a, foreign), want: setCondition, reason: offloadingv1beta1.ReasonPodCollision},
		"somebody else's, looked at just now": {shadow: a, pod: podOf(a, foreign), more: func(f *facts) { f.notBefore = testTime().Add(1) }, want: wait},
		"somebody else's, after our end":      {shadow: newShadow(always, ended(corev1.PodFailed)), pod: podOf(a, foreign), want: nothing},
		"the predecessor's, seen first":       {shadow: a, pod: podOf(a, ownedBy("shadow-0")), want: startLeaving},
		"the predecessor's, seen 1 s ago":     {shadow: a, pod: podOf(a, ownedBy("shadow-0")), more: since(time.Second), want: wait},
		"the predecessor's, seen 5 s ago":     {shadow: a, pod: podOf(a, ownedBy("shadow-0")), more: since(leaveDelay), want: deletePod, asks: true},
		"the predecessor's goes":              {shadow: a, pod: podOf(a, ownedBy("shadow-0"), deleting), more: since(time.Hour), want: nothing},
		"no ShadowPod, seen first":            {pod: podOf(a), want: startLeaving},
		"no ShadowPod, seen 5 s ago":          {pod: podOf(a), more: since(leaveDelay), want: deletePod, asks: true},
		"no ShadowPod, live":                  {pod: podOf(a), more: func(f *facts) { since(leaveDelay)(f); f.live = true }, want: deletePod},
		"no ShadowPod, ended Never":           {pod: podOf(n, exited(0, 0)), more: since(leaveDelay), want: deletePod, asks: true},
		"no ShadowPod, going, still running":  {pod: podOf(n, deleting), want: nothing},
		"no ShadowPod, going, stopped":        {pod: podOf(n, deleting, exited(143, 0)), want: releasePod, asks: true},
		"no ShadowPod, forced":                {pod: podOf(n, forced), want: releasePod, asks: true},
		"no ShadowPod, going, no finalizer":   {pod: podOf(a, deleting, exited(143, 0)), want: nothing},
		"no ShadowPod, orphaned":              {pod: podOf(a, orphaned), more: since(leaveDelay), want: deletePod, asks: true},
		"no ShadowPod, orphaned and adopted":  {pod: podOf(a, adopted), more: since(leaveDelay), want: deletePod, asks: true},
		"the predecessor's, orphaned":         {shadow: newShadow(always, func(s *offloadingv1beta1.ShadowPod) { s.UID = "shadow-2" }), pod: podOf(a, orphaned), more: since(leaveDelay), want: deletePod, asks: true},
		"ShadowPod goes, pod orphaned":        {shadow: newShadow(always, goes), pod: podOf(a, orphaned), more: since(leaveDelay), want: deletePod, asks: true},
		"owner reference lost":                {shadow: a, pod: podOf(a, orphaned), want: updatePod},
		"owner reference lost to another":     {shadow: a, pod: podOf(a, adopted), want: updatePod},
		"no ShadowPod, mark and UID of none":  {pod: podOf(a, orphaned, func(p *corev1.Pod) { delete(p.Labels, offloadingv1beta1.ManagedByLabel) }), more: since(time.Hour), want: nothing},
		"no ShadowPod, not of any":            {pod: podOf(a, foreign), more: since(time.Hour), want: nothing},
		"ShadowPod goes, pod runs":            {shadow: newShadow(always, goes), pod: podOf(a), more: since(leaveDelay), want: deletePod, asks: true},
	})
}

func image(ref string) shadowMod {
	return func(s *offloadingv1beta1.ShadowPod) { s.Spec.Pod.Containers[0].Image = ref; s.Generation++ }
}

func since(d time.Duration) func(*facts) {
	return func(f *facts) { f.leavingSince = testTime().Add(-d) }
}

func TestDecideOnAPodDeletedHere(t *testing.T) {
	a, o, n := newShadow(always), newShadow(onFailure), newShadow(never)
	lost := offloadingv1beta1.ReasonRemotePodLost
	checkAll(t, map[string]row{
		"Always, going":                      {shadow: a, pod: podOf(a, deleting), want: nothing},
		"Always, stopped":                    {shadow: a, pod: podOf(a, deleting, exited(143, 0)), want: recordLoss},
		"Always, stopped with 0":             {shadow: a, pod: podOf(a, deleting, exited(0, time.Hour)), want: recordLoss},
		"Always, stopped and recorded":       {shadow: newShadow(always, replaced("pod-1")), pod: podOf(a, deleting, exited(143, 0)), want: nothing},
		"Always, evicted before":             {shadow: a, pod: podOf(a, exited(137, time.Hour), reason("Evicted"), deleting), want: recordEnd, phase: corev1.PodFailed, reason: "Evicted"},
		"Never, going":                       {shadow: n, pod: podOf(n, deleting), want: nothing},
		"Never, killed":                      {shadow: n, pod: podOf(n, deleting, exited(143, 5*time.Second)), want: recordEnd, phase: corev1.PodFailed, reason: lost},
		"Never, stopped with 0":              {shadow: n, pod: podOf(n, deleting, exited(0, 5*time.Second)), want: recordEnd, phase: corev1.PodFailed, reason: lost},
		"Never, in the second of the demand": {shadow: n, pod: podOf(n, deleting, exited(0, 10*time.Second)), want: recordEnd, phase: corev1.PodFailed, reason: lost},
		"Never, done before":                 {shadow: n, pod: podOf(n, deleting, exited(0, 11*time.Second)), want: recordEnd, phase: corev1.PodSucceeded},
		"Never, failed before":               {shadow: n, pod: podOf(n, deleting, exited(3, 11*time.Second)), want: recordEnd, phase: corev1.PodFailed},
		"Never, done and told before":        {shadow: n, pod: podOf(n, exited(0, 0), forced), want: recordEnd, phase: corev1.PodSucceeded},
		"Never, last step hides the time":    {shadow: n, pod: podOf(n, deleting, exited(0, time.Minute), forced), want: recordEnd, phase: corev1.PodFailed, reason: lost},
		"Never, the same of an old kubelet":  {shadow: n, pod: podOf(n, deleting, exited(0, time.Minute), forced, oldKubelet), want: recordEnd, phase: corev1.PodSucceeded},
		"Never, forced":                      {shadow: n, pod: podOf(n, forced), want: recordEnd, phase: corev1.PodFailed, reason: lost},
		"Never, node gone":                   {shadow: n, pod: podOf(n, garbageCollected, forced), want: recordEnd, phase: corev1.PodFailed, reason: lost},
		"Never, unscheduled":                 {shadow: n, pod: podOf(n, unscheduled, forced), want: recordLoss},
		"Never, never ran":                   {shadow: n, pod: podOf(n, deleting, neverRan), want: recordLoss},
		"Never, perhaps never ran":           {shadow: n, pod: podOf(n, pending, forced), want: recordEnd, phase: corev1.PodFailed, reason: lost},
		"Never, loss recorded":               {shadow: newShadow(never, replaced("pod-1")), pod: podOf(n, unscheduled, forced), want: releasePod},
		"Never, loss recorded and let go":    {shadow: newShadow(never, replaced("pod-1")), pod: podOf(n, unscheduled, forced, released), want: nothing},
		"OnFailure, killed":                  {shadow: o, pod: podOf(o, deleting, exited(143, 5*time.Second)), want: recordLoss},
		"OnFailure, crash looping":           {shadow: o, pod: podOf(o, deleting, exited(1, time.Hour)), want: recordLoss},
		"OnFailure, loss recorded":           {shadow: newShadow(onFailure, replaced("pod-1")), pod: podOf(o, deleting, exited(143, 5*time.Second)), want: releasePod},
		"OnFailure, done before":             {shadow: o, pod: podOf(o, deleting, exited(0, time.Hour)), want: recordEnd, phase: corev1.PodSucceeded},
		"OnFailure, stopped with 0":          {shadow: o, pod: podOf(o, deleting, exited(0, 5*time.Second)), want: recordEnd, phase: corev1.PodFailed, reason: lost},
		"OnFailure, past its deadline":       {shadow: o, pod: podOf(o, deleting, exited(1, time.Hour), reason("DeadlineExceeded")), want: recordEnd, phase: corev1.PodFailed, reason: "DeadlineExceeded"},
		"OnFailure, node did not answer":     {shadow: o, pod: podOf(o, deleting, reason(reasons.NodeLost), forced), want: recordLoss},
		"OnFailure, forced":                  {shadow: o, pod: podOf(o, forced), want: recordLoss},
		"OnFailure, one of two done": {shadow: o, pod: podOf(o, forced, func(p *corev1.Pod) {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: "side",
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}})
		}), want: recordEnd, phase: corev1.PodFailed, reason: lost},
	})
}

// TestPolicyOfItsContainers: a pod with restart policy Always can also end by itself, if
// all its containers have their own policy.
func TestPolicyOfItsContainers(t *testing.T) {
	own := func(policy corev1.ContainerRestartPolicy, rules ...corev1.ContainerRestartRule) shadowMod {
		return func(s *offloadingv1beta1.ShadowPod) {
			s.Spec.Pod.Containers[0].RestartPolicy, s.Spec.Pod.Containers[0].RestartPolicyRules = &policy, rules
		}
	}
	n, o := newShadow(always, own("Never")), newShadow(always, own("OnFailure"))
	r := newShadow(always, own("Never", corev1.ContainerRestartRule{Action: corev1.ContainerRestartRuleActionRestart,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}}}))
	lost := offloadingv1beta1.ReasonRemotePodLost
	require.Equal(t, []string{offloadingv1beta1.RemotePodFinalizer}, podOf(n).Finalizers)
	checkAll(t, map[string]row{
		"Never, killed":              {shadow: n, pod: podOf(n, deleting, exited(143, 5*time.Second)), want: recordEnd, phase: corev1.PodFailed, reason: lost},
		"Never, done before":         {shadow: n, pod: podOf(n, deleting, exited(0, time.Hour)), want: recordEnd, phase: corev1.PodSucceeded},
		"Never, failed before":       {shadow: n, pod: podOf(n, deleting, exited(3, time.Hour)), want: recordEnd, phase: corev1.PodFailed},
		"a rule, between two runs":   {shadow: r, pod: podOf(r, deleting, exited(42, time.Hour)), want: recordEnd, phase: corev1.PodFailed, reason: lost},
		"OnFailure, crash looping":   {shadow: o, pod: podOf(o, deleting, exited(1, time.Hour)), want: recordLoss},
		"OnFailure, done before":     {shadow: o, pod: podOf(o, deleting, exited(0, time.Hour)), want: recordEnd, phase: corev1.PodSucceeded},
		"OnFailure, killed while up": {shadow: o, pod: podOf(o, deleting, exited(143, 5*time.Second)), want: recordLoss},
	})
}

func TestNothingIsCreatedAfterTheEnd(t *testing.T) {
	// A ShadowPod whose end is recorded never leads to a creation, whatever the state of
	// its pod.
	for _, policy := range []corev1.RestartPolicy{always, onFailure, never} {
		s := newShadow(policy, old, ended(corev1.PodFailed))
		for name, pod := range map[string]*corev1.Pod{
			"none": nil, "running": podOf(s), "going": podOf(s, deleting), "stopped": podOf(s, deleting, exited(0, 0)), "forced": podOf(s, forced),
		} {
			got := decide(facts{shadow: s, pod: pod, lost: podOf(s), namespace: twin(), now: testTime()})
			require.Contains(t, []verb{nothing, releasePod}, got.verb, "%s %s", policy, name)
		}
	}
}

func debugContainers(names ...string) []corev1.EphemeralContainer {
	var out []corev1.EphemeralContainer
	for _, name := range names {
		out = append(out, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "tools:1"}})
	}
	return out
}

func debug(names ...string) shadowMod {
	return func(s *offloadingv1beta1.ShadowPod) { s.Spec.Pod.EphemeralContainers = debugContainers(names...) }
}

func hasDebug(names ...string) podMod {
	return func(p *corev1.Pod) { p.Spec.EphemeralContainers = debugContainers(names...) }
}
