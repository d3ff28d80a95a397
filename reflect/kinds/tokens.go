package kinds

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

const (
	// TokensLoop is the name of the loop that issues tokens for pods.
	TokensLoop = "tokens"

	// tokenIndex is the index of pods by the namespace and name of the tokens that they
	// need.
	tokenIndex = "tokens"
	// tokenLinger is how long a token is kept after its last pod. Usually the next pod of
	// the same controller follows soon.
	tokenLinger = 5 * time.Second
	// tokenPace is the delay between two requests for the same token, for example because
	// a client in the provider keeps changing its Secret. It doubles up to longestPace
	// until the token is accepted.
	tokenPace   = 2 * time.Second
	longestPace = time.Minute
)

// tokens maintains the tokens of service accounts that offloaded pods need, as Secrets in
// the provider. There is one for each combination of service account, audience and
// lifetime, as long as a pod uses it. Each token is bound to an empty Secret in the
// consumer, whose deletion revokes it, or to its pod. If the setting for the binding
// changes, existing pods keep the tokens that they mount.
type tokens struct {
	pods *Pods
	loop *loop.Loop

	spaces *engine.Spaces[*tokenSpace]

	mu   sync.Mutex
	uses map[loop.Key]use

	// told has the last event about each pod, by its UID.
	told sync.Map
}

// use is what is remembered of a token.
type use struct {
	// by is the name of a pod that was seen to use it, and unused the time since when it has no pods.
	by     string
	unused time.Time
	// asked is the time of the last request for it, and pause the delay until the next one.
	asked time.Time
	pause time.Duration
}

func newTokens(p *Pods) *tokens {
	t := &tokens{pods: p, uses: map[loop.Key]use{}}
	t.spaces = engine.NewSpaces(t.open, t.close)
	t.loop = loop.New(loop.Config{
		Name: TokensLoop, Sync: t.sync, Log: p.cfg.Log, Observer: p.cfg.Observer,
		// The namespaces may be synced before the loop runs.
		Beside: func() []loop.Key { return t.keys(corev1.NamespaceAll) },
	})
	t.loop.Index(p.cfg.Pods.Informer(), tokenIndex, store.Index(func(pod *corev1.Pod) (keys []string) {
		for _, token := range p.tokensOfBoth(pod) {
			keys = append(keys, pod.Namespace+"/"+token.Name)
		}
		return keys
	}))
	return t
}

// run maintains the tokens until ctx is done.
func (t *tokens) run(ctx context.Context) error {
	if _, err := loop.Register(loop.On(t.pods.cfg.Pods.Informer(), t.onPod())); err != nil {
		return err
	}
	return t.loop.Run(ctx, max(t.pods.cfg.TokenWorkers, 1))
}

// tokenOptions returns the options that determine the tokens of a pod.
func (p *Pods) tokenOptions() forge.PodOptions {
	return forge.PodOptions{NodeName: p.cfg.Node, API: p.cfg.API, ObjectOptions: forge.ObjectOptions{OriginClusterID: p.cfg.Origin, DestinationClusterID: p.cfg.Destination}}
}

// tokensOf returns the tokens that the pod gets under the current setting.
func (p *Pods) tokensOf(pod *corev1.Pod) []forge.Token { return forge.Tokens(pod, p.tokenOptions()) }

// otherTokens returns the tokens that the pod would have under the other setting for the
// binding.
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

// tokenView is the known state of one token. Fields are nil if an object does not exist.
type tokenView struct {
	key   loop.Key
	space *tokenSpace
	token forge.Token
	// users are the pods that use the token.
	users           iter.Seq[*corev1.Pod]
	binding, secret *corev1.Secret
}

func (t *tokens) sync(ctx context.Context, key loop.Key) error {
	v := tokenView{key: key, space: t.spaces.Get(key.Namespace)}
	tw := t.pods.twins.Get(key.Namespace)
	if v.space == nil || tw == nil || !v.space.synced() || !tw.synced() {
		return nil // wakeNamespace follows when the caches have synced
	}
	v.binding, v.secret = v.space.bindings.Get(key), v.space.secrets.Get(loop.Key{Namespace: v.space.remote, Name: key.Name})

	v.users = t.usersOf(tw, v)
	// One user is enough. A token can have thousands of pods, each of which triggers a
	// sync.
	for user := range v.users {
		t.change(key, func(u *use) { u.by, u.unused = user.Name, time.Time{} })
		for _, token := range t.pods.tokensOfBoth(user) {
			if token.Name == key.Name {
				v.token = token
			}
		}
		return t.provide(ctx, v)
	}
	return t.withdraw(ctx, tw, v)
}

// usersOf returns the pods that use the token. The first is the one that the last sync has
// seen, as long as it uses the token: only then the others are looked for. The index returns
// them in random order, so that this happens rarely while all of them are deleted.
func (t *tokens) usersOf(tw *twin, v tokenView) iter.Seq[*corev1.Pod] {
	exists := v.binding != nil || v.secret != nil
	return func(yield func(*corev1.Pod) bool) {
		last := t.lastUser(v.key)
		if last != nil && t.needs(tw, last, v.key.Name, exists) && !yield(last) {
			return
		}
		for _, pod := range store.ByIndex[*corev1.Pod](t.pods.cfg.Pods.Informer().GetIndexer(), tokenIndex, v.key.String()) {
			if pod != last && t.needs(tw, pod, v.key.Name, exists) && !yield(pod) {
				return
			}
		}
	}
}

// lastUser returns the pod that was seen to use the token, or nil if it does not need the
// token any more.
func (t *tokens) lastUser(key loop.Key) *corev1.Pod {
	t.mu.Lock()
	name := t.uses[key].by
	t.mu.Unlock()
	pod, err := t.pods.cfg.Pods.Lister().Pods(key.Namespace).Get(name)
	if err != nil || !slices.ContainsFunc(t.pods.tokensOfBoth(pod), named(key.Name)) {
		return nil // a lister returns no other error than NotFound
	}
	return pod
}

// needs reports whether a pod uses a token. If the pod has a ShadowPod, the volumes of the
// ShadowPod decide. Without a ShadowPod it will get the tokens of the current setting.
// exists reports whether the token exists.
func (t *tokens) needs(tw *twin, pod *corev1.Pod, name string, exists bool) bool {
	if ended(pod) {
		return false
	}
	if shadow := t.shadowOfPod(tw, pod); shadow != nil {
		return forge.MountsSecret(&shadow.Spec.Pod, name)
	}
	if remote := tw.pods.Cached(tw.key(pod.Name)); remote != nil && localUID(remote) == pod.UID {
		return exists // the pod may need it until its end, and its ShadowPod can no longer show which one
	}
	return pod.DeletionTimestamp == nil && !t.leaving() && slices.ContainsFunc(t.pods.tokensOf(pod), named(name))
}

// shadowOfPod returns the ShadowPod of a pod, or nil.
func (t *tokens) shadowOfPod(tw *twin, pod *corev1.Pod) *offloadingv1beta1.ShadowPod {
	shadow := tw.shadows.Get(tw.key(pod.Name))
	if shadow == nil || localUID(shadow) != pod.UID {
		return nil
	}
	return shadow
}

// leaving reports whether the virtual node is being removed, so that it gets no new pods.
func (t *tokens) leaving() bool {
	vn := t.pods.cfg.virtualNode()
	return vn == nil || vn.DeletionTimestamp != nil
}

// provide ensures that the provider has a valid token, and requeues the key for its
// renewal.
func (t *tokens) provide(ctx context.Context, v tokenView) error {
	if err := t.pods.cfg.Gate(); err != nil {
		t.pods.cfg.Log.Debug("writes to the provider are blocked", zap.Error(err))
		return nil // Resync follows
	}
	account := v.space.accounts.Cached(loop.Key{Namespace: v.key.Namespace, Name: v.token.ServiceAccount})
	if account == nil {
		t.pods.Settled(v.key.Namespace, "secret", v.key.Name) // no pod waits for it
		t.tell(v.users, fmt.Sprintf("no token for cluster %s: there is no service account %s in namespace %s", t.pods.cfg.Destination, v.token.ServiceAccount, v.key.Namespace))
		return nil // the creation of the service account triggers a new sync
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

// bind returns the object that the token is bound to. It creates a missing Secret.
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
		return nil, loop.After(engine.NamespaceRetry) // revoked: a new one can only be created after the end of the deletion
	}
	return &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: v.binding.Name, UID: v.binding.UID}, nil
}

// makeBinding creates the Secret in the consumer that a token is bound to. Its owner is
// the RoleBinding that grants this vkubelet the right to request tokens. When the
// RoleBinding is deleted, the garbage collector deletes the Secret and thereby revokes
// the token, even if this process no longer runs.
func (t *tokens) makeBinding(ctx context.Context, v tokenView) (*corev1.Secret, error) {
	core := t.pods.cfg.Home
	rights, err := core.RbacV1().RoleBindings(v.key.Namespace).Get(ctx, t.pods.cfg.RightsName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the RoleBinding that tokens are owned by: %w", err)
	}
	owner := metav1.OwnerReference{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding", Name: rights.Name, UID: rights.UID}
	want := forge.BindingSecret(v.token, v.key.Namespace, t.pods.cfg.Node, owner)
	return creation[*corev1.Secret]{
		all: v.space.bindings, client: core.CoreV1().Secrets(v.key.Namespace),
		mine: func(have *corev1.Secret) bool {
			return labels.SelectorFromSet(want.Labels).Matches(labels.Set(have.Labels))
		},
		stranger: func(have *corev1.Secret) error {
			t.tell(v.users, fmt.Sprintf("no token for cluster %s: Secret %s/%s is not liqod's (labels %v); waiting until it is gone", t.pods.cfg.Destination, have.Namespace, have.Name, want.Labels))
			return nil
		},
		failed: func(err error) error {
			return fmt.Errorf("creating the Secret that tokens are bound to: %w", err)
		},
	}.create(ctx, want)
}

// issue requests a token and writes it to the provider.
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
	answer, err := core.ServiceAccounts(v.key.Namespace).CreateToken(ctx, account.Name, request, metav1.CreateOptions{FieldManager: engine.FieldManager})
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

// change calls f with what is remembered of a token.
func (t *tokens) change(key loop.Key, f func(*use)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.uses[key]
	f(&u)
	t.uses[key] = u
}

// pace returns how long to wait before the token may be requested again.
func (t *tokens) pace(key loop.Key, now time.Time) (wait time.Duration) {
	t.change(key, func(u *use) {
		if wait = u.asked.Add(u.pause).Sub(now); wait <= 0 {
			u.asked, u.pause = now, loop.Backoff{First: tokenPace, Longest: longestPace}.Next(u.pause)
		}
	})
	return wait
}

// arrived records that the provider has a valid token, and forgets the events about its
// pods.
func (t *tokens) arrived(v tokenView) {
	t.pods.Settled(v.key.Namespace, "secret", v.key.Name)
	t.change(v.key, func(u *use) {
		if !u.asked.IsZero() {
			u.pause = tokenPace
		}
	})
	t.told.Range(func(any, any) bool { // mostly there are none, and a token can have thousands of users
		for pod := range v.users {
			t.told.Delete(pod.UID)
		}
		return false
	})
}

// resync enqueues all tokens and resets their delays.
func (t *tokens) resync() {
	t.mu.Lock()
	for key, u := range t.uses {
		t.uses[key] = use{by: u.by, unused: u.unused}
	}
	t.mu.Unlock()
	t.wakeNamespace(corev1.NamespaceAll)
}

// withdraw revokes a token that no pod uses, and deletes its Secret in the provider.
func (t *tokens) withdraw(ctx context.Context, tw *twin, v tokenView) error {
	if v.binding == nil && v.secret == nil {
		t.droppedToken(v.key)
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
		return loop.After(store.CatchUp) // the cache is behind
	}
	if b := v.binding; b != nil && b.DeletionTimestamp == nil && !v.space.bindings.WasDeleted(b.UID) {
		if err := v.space.bindings.Delete(ctx, b); err != nil {
			return err
		}
		v.space.bindings.Gone(b)
	}
	if v.secret == nil || t.pods.cfg.Gate() != nil {
		return nil // Resync follows
	}
	return t.remove(ctx, v)
}

// usedLive reports, by a live read, whether any pod uses the token.
func (t *tokens) usedLive(ctx context.Context, tw *twin, key loop.Key) (bool, error) {
	ofNode := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", t.pods.cfg.Node).String()}
	all, err := store.Find[*corev1.Pod](ctx, "pod", t.pods.cfg.Home.CoreV1().Pods(key.Namespace), ofNode)
	return slices.ContainsFunc(all, func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(t.pods.tokensOfBoth(pod), named(key.Name)) && t.needs(tw, pod, key.Name, true)
	}), err
}

// linger returns how much longer an unused token is kept. It returns 0 if tokens are
// disabled or the virtual node is being removed.
func (t *tokens) linger(key loop.Key) (left time.Duration) {
	if !t.pods.cfg.API.Enabled || t.leaving() {
		return 0
	}
	now := t.pods.cfg.Clock.Now()
	t.change(key, func(u *use) {
		if u.unused.IsZero() {
			u.unused = now
		}
		left = u.unused.Add(tokenLinger).Sub(now)
	})
	return left
}

func (t *tokens) droppedToken(key loop.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.uses, key)
}

// tell records an event on each pod, unless it equals the last one.
func (t *tokens) tell(users iter.Seq[*corev1.Pod], message string) {
	message = store.ClipMessage(message) // the message may quote the provider
	for pod := range users {
		if before, _ := t.told.Swap(pod.UID, message); before != message {
			t.pods.cfg.Recorder.Event(pod, corev1.EventTypeWarning, reasons.FailedSATokensReflection, message)
		}
	}
}

// ofThisNode reports whether a Secret in the provider belongs to this virtual node.
func (t *tokens) ofThisNode(s *corev1.Secret) bool {
	want := labels.SelectorFromSet(forge.TokenLabels(t.pods.cfg.Node))
	return want.Matches(labels.Set(s.Labels)) && s.Labels[offloadingv1beta1.OriginLabel] == t.pods.cfg.Origin
}
