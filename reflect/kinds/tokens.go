package kinds

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/apply"
	"github.com/liqod/liqod/kube/informer"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/reflect/forge"
)

const (
	// TokensLoop is the name of the loop that provides pods with tokens.
	TokensLoop = "tokens"

	// tokenIndex finds the pods that need a token, by its namespace and name.
	tokenIndex = "tokens"
	// tokenLinger is how long a token outlives its last pod: the next one of its owner comes
	// within a moment, most often.
	tokenLinger = 5 * time.Second
	// tokenPace spaces the tokens that are asked for under one name: a provider that spoils
	// them costs no more than that. It doubles, up to longestPace, while none arrives.
	tokenPace   = 2 * time.Second
	longestPace = time.Minute
	// reasonTokens is the reason of the events that say why a pod gets no token.
	reasonTokens = "FailedSATokensReflection"
)

// tokens keeps, in the provider, the tokens of service accounts that offloaded pods
// carry: one for each account, audience and lifetime, for as long as a pod uses it. At
// home each is bound to a Secret without content, whose deletion revokes it, or to its pod.
// A pod that was made while the setting was another keeps the token that it mounts, and
// that keeps its binding.
type tokens struct {
	pods *Pods
	loop *loop.Loop

	// What was written a moment ago, until the caches show it.
	bindings, secrets *informer.Writes[*corev1.Secret]

	mu     sync.Mutex
	spaces map[string]*tokenSpace
	// unused has when a token was first seen without pods.
	unused map[loop.Key]time.Time
	// tries has what was done to get a token.
	tries map[loop.Key]try
	// told has what an event has told of, by the UID of the pod.
	told map[types.UID]string
}

// try is when a token was last asked for, and after which pause it may be again.
type try struct {
	at    time.Time
	pause time.Duration
}

func newTokens(p *Pods) (*tokens, error) {
	t := &tokens{
		pods:     p,
		bindings: informer.NewWrites[*corev1.Secret](p.cfg.Clock), secrets: informer.NewWrites[*corev1.Secret](p.cfg.Clock),
		spaces: map[string]*tokenSpace{}, unused: map[loop.Key]time.Time{}, tries: map[loop.Key]try{}, told: map[types.UID]string{},
	}
	t.loop = loop.New(loop.Config{
		Name: TokensLoop, Sync: t.sync, Log: p.cfg.Log, Observer: p.cfg.Observer,
		// The namespaces may be known before the loop runs.
		Beside: func() []loop.Key { return t.keys(corev1.NamespaceAll) },
	})
	err := p.cfg.Pods.Informer().AddIndexers(cache.Indexers{tokenIndex: func(obj any) ([]string, error) {
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			return nil, nil
		}
		var keys []string
		for _, token := range p.tokensOfBoth(pod) {
			keys = append(keys, pod.Namespace+"/"+token.Name)
		}
		return keys, nil
	}})
	if err != nil {
		return nil, fmt.Errorf("indexing pods by their tokens: %w", err)
	}
	return t, nil
}

// run provides tokens until ctx ends.
func (t *tokens) run(ctx context.Context) error {
	reg, err := t.pods.cfg.Pods.Informer().AddEventHandler(t.podHandler())
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	// An informer that refuses to forget a handler has been stopped: nothing is left to undo.
	defer func() { _ = t.pods.cfg.Pods.Informer().RemoveEventHandler(reg) }()
	return t.loop.Run(ctx, max(t.pods.cfg.TokenWorkers, 1))
}

// tokenOptions is what the tokens of a pod follow from.
func (p *Pods) tokenOptions() forge.PodOptions {
	return forge.PodOptions{OriginClusterID: p.cfg.Origin, DestinationClusterID: p.cfg.Destination, NodeName: p.cfg.Node, API: p.cfg.API}
}

// tokensOf are the tokens of a pod that is made now.
func (p *Pods) tokensOf(pod *corev1.Pod) []forge.Token { return forge.Tokens(pod, p.tokenOptions()) }

// otherTokens are the tokens of a pod that was made while the setting bound them otherwise.
func (p *Pods) otherTokens(pod *corev1.Pod) []forge.Token {
	o := p.tokenOptions()
	o.API.PodBound = !o.API.PodBound
	return forge.Tokens(pod, o)
}

func (p *Pods) tokensOfBoth(pod *corev1.Pod) []forge.Token {
	return append(p.tokensOf(pod), p.otherTokens(pod)...)
}

func (p *Pods) carries(pod *corev1.Pod) bool { return len(p.tokensOf(pod)) > 0 }

func named(name string) func(forge.Token) bool {
	return func(t forge.Token) bool { return t.Name == name }
}

// tokenView is all that is known of one token: nil where there is none.
type tokenView struct {
	key   loop.Key
	space *tokenSpace
	token forge.Token
	// users are the pods that use it.
	users           iter.Seq[*corev1.Pod]
	binding, secret *corev1.Secret
}

func (t *tokens) sync(ctx context.Context, key loop.Key) error {
	v := tokenView{key: key, space: t.space(key.Namespace)}
	tw := t.pods.twins.get(key.Namespace)
	if v.space == nil || tw == nil || !v.space.synced() || !tw.synced() {
		return nil // looked at again as soon as they are
	}
	binding, err := v.space.bindings.Get(key.Name)
	v.binding, _ = t.bindings.Latest(key, binding, err == nil)
	secret, err := v.space.secrets.Get(key.Name)
	v.secret, _ = t.secrets.Latest(loop.Key{Namespace: v.space.remote, Name: key.Name}, secret, err == nil)

	found, err := t.pods.cfg.Pods.Informer().GetIndexer().ByIndex(tokenIndex, key.String())
	if err != nil {
		return fmt.Errorf("looking for the pods of a token: %w", err)
	}
	v.users = t.usersAmong(found, tw, v)
	// One is enough: a token may have thousands, and each of them wakes us.
	for user := range v.users {
		t.seenUsed(key)
		for _, token := range t.pods.tokensOfBoth(user) {
			if token.Name == key.Name {
				v.token = token
			}
		}
		return t.provide(ctx, v)
	}
	return t.withdraw(ctx, tw, v)
}

// usersAmong are the pods, of those that name a token, that use it.
func (t *tokens) usersAmong(found []any, tw *twin, v tokenView) iter.Seq[*corev1.Pod] {
	exists := v.binding != nil || v.secret != nil
	return func(yield func(*corev1.Pod) bool) {
		for _, obj := range found {
			if pod, ok := obj.(*corev1.Pod); ok && t.uses(tw, pod, v.key.Name, exists) && !yield(pod) {
				return
			}
		}
	}
}

// uses reports whether a pod that may need a token does: it runs in the provider with it,
// or will. One that was made there without it gets none, one that is made now those of the
// setting. exists tells whether the token does.
func (t *tokens) uses(tw *twin, pod *corev1.Pod, name string, exists bool) bool {
	if ended(pod) {
		return false
	}
	if shadow := t.shadow(tw, pod); shadow != nil {
		return forge.MountsSecret(&shadow.Spec.Pod, name)
	}
	if remote, err := tw.pods.Get(pod.Name); err == nil && localUID(remote) == pod.UID {
		return exists // its end may need it, and nothing says that it has another
	}
	return pod.DeletionTimestamp == nil && !t.leaving() && slices.ContainsFunc(t.pods.tokensOf(pod), named(name))
}

// shadow returns the ShadowPod of a pod, or nil.
func (t *tokens) shadow(tw *twin, pod *corev1.Pod) *offloadingv1beta1.ShadowPod {
	cached, err := tw.shadows.Get(pod.Name)
	shadow, found := t.pods.shadows.Latest(loop.Key{Namespace: tw.remote, Name: pod.Name}, cached, err == nil)
	if !found || localUID(shadow) != pod.UID {
		return nil
	}
	return shadow
}

// leaving reports whether the virtual node goes away: no pod comes to it any more.
func (t *tokens) leaving() bool {
	vn := t.pods.virtualNode()
	return vn == nil || vn.DeletionTimestamp != nil
}

// provide keeps a token in the provider that lives for some while longer.
func (t *tokens) provide(ctx context.Context, v tokenView) error {
	if err := t.pods.cfg.Gate(); err != nil {
		t.pods.cfg.Log.Debug("the provider may not be acted upon", zap.Error(err))
		return nil // Resync follows
	}
	account, err := v.space.accounts.Get(v.token.ServiceAccount)
	if err != nil { // a lister's only error is that there is none
		t.tell(v.users, fmt.Sprintf("no token for cluster %s: there is no service account %s in namespace %s", t.pods.cfg.Destination, v.token.ServiceAccount, v.key.Namespace))
		return nil // its creation wakes us
	}
	bound, err := t.bind(ctx, v)
	if err != nil {
		return err
	}
	now := t.pods.cfg.Clock.Now()
	if due := forge.TokenDue(v.secret, account.UID, bound.UID); now.Before(due) {
		t.arrived(v)
		return loop.After(due.Sub(now))
	}
	if wait := t.pace(v.key, now); wait > 0 {
		return loop.After(wait)
	}
	return t.issue(ctx, v, account, bound)
}

// bind returns what the token is bound to, and makes it where it is missing.
func (t *tokens) bind(ctx context.Context, v tokenView) (*authenticationv1.BoundObjectReference, error) {
	if v.token.PodUID != "" {
		return &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: v.token.PodName, UID: v.token.PodUID}, nil
	}
	if v.binding == nil {
		made, err := t.makeBinding(ctx, v)
		if err != nil {
			return nil, err
		}
		v.binding = made
	}
	if v.binding.DeletionTimestamp != nil {
		return nil, loop.After(namespaceRetry) // revoked: the next one has to wait for its end
	}
	return &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: v.binding.Name, UID: v.binding.UID}, nil
}

// makeBinding makes the Secret at home that a token is bound to. Its owner is the
// RoleBinding by which this vkubelet may ask for tokens: when the rights go, so do the
// tokens, whether or not this process still runs.
func (t *tokens) makeBinding(ctx context.Context, v tokenView) (*corev1.Secret, error) {
	core := t.pods.cfg.Home
	rights, err := core.RbacV1().RoleBindings(v.key.Namespace).Get(ctx, t.pods.cfg.RightsName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the RoleBinding that tokens are owned by: %w", err)
	}
	owner := metav1.OwnerReference{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding", Name: rights.Name, UID: rights.UID}
	want := forge.BindingSecret(v.token, v.key.Namespace, t.pods.cfg.Node, owner)
	made, err := core.CoreV1().Secrets(v.key.Namespace).Create(ctx, want, metav1.CreateOptions{FieldManager: fieldManager})
	switch {
	case err == nil:
		t.bindings.Wrote(made)
		return made, nil
	case apierrors.IsAlreadyExists(err):
		have, err := core.CoreV1().Secrets(v.key.Namespace).Get(ctx, want.Name, metav1.GetOptions{})
		if err == nil && !hasLabels(have, want.Labels) {
			t.tell(v.users, fmt.Sprintf("no token for cluster %s: Secret %s/%s is not liqod's (labels %v); waiting until it is gone", t.pods.cfg.Destination, have.Namespace, have.Name, want.Labels))
			return nil, loop.After(takenRetry)
		}
		return nil, errors.Join(ignoreGone(err), loop.After(staleRetry)) // the cache is behind
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil, loop.After(namespaceRetry)
	default:
		return nil, fmt.Errorf("creating the Secret that tokens are bound to: %w", err)
	}
}

// issue asks for a token and puts it into the provider.
func (t *tokens) issue(ctx context.Context, v tokenView, account *corev1.ServiceAccount, bound *authenticationv1.BoundObjectReference) error {
	core := t.pods.cfg.Home.CoreV1()
	ca, err := core.ConfigMaps(v.key.Namespace).Get(ctx, forge.RootCAConfigMap, metav1.GetOptions{})
	if err != nil {
		t.tell(v.users, fmt.Sprintf("no token for cluster %s: reading ConfigMap %s: %v", t.pods.cfg.Destination, forge.RootCAConfigMap, err))
		return fmt.Errorf("reading the CA that goes with tokens: %w", err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &v.token.Seconds, BoundObjectRef: bound}}
	if v.token.Audience != "" {
		request.Spec.Audiences = []string{v.token.Audience}
	}
	now := t.pods.cfg.Clock.Now()
	answer, err := core.ServiceAccounts(v.key.Namespace).CreateToken(ctx, account.Name, request, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil {
		t.tell(v.users, fmt.Sprintf("no token of service account %s for cluster %s: %v", account.Name, t.pods.cfg.Destination, err))
		return fmt.Errorf("asking for a token: %w", err)
	}
	o := t.pods.tokenOptions()
	o.RemoteNamespace = v.space.remote
	want := forge.TokenSecret(forge.IssuedToken{
		Token: v.token, Value: answer.Status.Token, CA: ca.Data[corev1.ServiceAccountRootCAKey], Namespace: v.key.Namespace,
		ServiceAccountUID: account.UID, BoundTo: bound.UID, Issued: now, Expires: answer.Status.ExpirationTimestamp.Time,
	}, o)
	if err := t.put(ctx, v, want); err != nil {
		return err
	}
	t.pods.cfg.Log.Debug("token provided", zap.Stringer("key", v.key))
	t.arrived(v)
	return loop.After(forge.TokenDue(want, account.UID, bound.UID).Sub(now))
}

// pace returns how long to wait before a token is asked for again under a name.
func (t *tokens) pace(key loop.Key, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, ok := t.tries[key]
	if wait := last.at.Add(last.pause).Sub(now); ok && wait > 0 {
		return wait
	}
	t.tries[key] = try{at: now, pause: min(max(2*last.pause, tokenPace), longestPace)}
	return 0
}

// arrived notes that a token is in the provider: what its pods were told holds no longer.
func (t *tokens) arrived(v tokenView) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last, ok := t.tries[v.key]; ok {
		t.tries[v.key] = try{at: last.at, pause: tokenPace}
	}
	if len(t.told) == 0 {
		return
	}
	for pod := range v.users {
		delete(t.told, pod.UID)
	}
}

// resync looks at all tokens again, those that could not be had at once.
func (t *tokens) resync() {
	t.mu.Lock()
	clear(t.tries)
	t.mu.Unlock()
	t.wakeNamespace(corev1.NamespaceAll)
}

// withdraw revokes a token that no pod uses any more, and removes it from the provider.
func (t *tokens) withdraw(ctx context.Context, tw *twin, v tokenView) error {
	if v.binding == nil && v.secret == nil {
		t.dropped(v.key)
		return nil
	}
	if wait := t.linger(v.key); wait > 0 {
		return loop.After(wait)
	}
	used, err := t.usedLive(ctx, tw, v.key)
	if err != nil {
		return err
	}
	if used {
		return loop.After(staleRetry) // the cache is behind
	}
	if b := v.binding; b != nil && b.DeletionTimestamp == nil && !t.bindings.WasDeleted(b.UID) {
		err := t.pods.cfg.Home.CoreV1().Secrets(b.Namespace).Delete(ctx, b.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(b.UID))})
		if ignoreGone(err) != nil {
			return fmt.Errorf("revoking a token: %w", err)
		}
		t.bindings.Gone(b)
		t.bindings.Deleted(b.UID)
	}
	if v.secret == nil || t.pods.cfg.Gate() != nil {
		return nil // Resync follows
	}
	return t.remove(ctx, v.secret)
}

// usedLive confirms by a live read that no pod uses a token.
func (t *tokens) usedLive(ctx context.Context, tw *twin, key loop.Key) (bool, error) {
	list, err := t.pods.cfg.Home.CoreV1().Pods(key.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", t.pods.cfg.Node).String(),
	})
	if err != nil {
		return false, fmt.Errorf("confirming that no pod uses a token: %w", err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		if slices.ContainsFunc(t.pods.tokensOfBoth(pod), named(key.Name)) && t.uses(tw, pod, key.Name, true) {
			return true, nil
		}
	}
	return false, nil
}

// linger returns how much longer an unused token stays: not at all when the tokens are
// switched off, or the virtual node goes away.
func (t *tokens) linger(key loop.Key) time.Duration {
	if !t.pods.cfg.API.Enabled || t.leaving() {
		return 0
	}
	now := t.pods.cfg.Clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	since, ok := t.unused[key]
	if !ok {
		since = now
		t.unused[key] = now
	}
	return since.Add(tokenLinger).Sub(now)
}

func (t *tokens) seenUsed(key loop.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.unused, key)
}

func (t *tokens) dropped(key loop.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.unused, key)
	delete(t.tries, key)
}

// tell tells each pod, once, why it has no token.
func (t *tokens) tell(users iter.Seq[*corev1.Pod], message string) {
	message = apply.ClipMessage(message) // it may quote the provider
	for pod := range users {
		t.mu.Lock()
		news := t.told[pod.UID] != message
		t.told[pod.UID] = message
		t.mu.Unlock()
		if news {
			t.pods.cfg.Recorder.Event(pod, corev1.EventTypeWarning, reasonTokens, message)
		}
	}
}

func (t *tokens) forget(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.told, uid)
}

func hasLabels(obj metav1.Object, want map[string]string) bool {
	for key, value := range want {
		if obj.GetLabels()[key] != value {
			return false
		}
	}
	return true
}

// ours reports whether a Secret in the provider is one of this virtual node's.
func (t *tokens) ours(s *corev1.Secret) bool {
	return hasLabels(s, forge.TokenLabels(t.pods.cfg.Node)) && s.Labels[offloadingv1beta1.OriginLabel] == t.pods.cfg.Origin
}
