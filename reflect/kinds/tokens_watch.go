package kinds

import (
	"context"
	"maps"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

// tokenSpace is an offloaded namespace with the informers that tokens depend on: service
// accounts and binding Secrets in the consumer, and Secrets with tokens in the provider.
// Only Secrets of this virtual node are watched.
type tokenSpace struct {
	opened
	accounts          corelisters.ServiceAccountNamespaceLister
	bindings, secrets corelisters.SecretNamespaceLister
}

// set starts and stops informers until they match want, which maps local to remote
// namespaces.
func (t *tokens) set(ctx context.Context, want map[string]string) {
	t.mu.Lock()
	closing := follow(t.spaces, want, func(have *tokenSpace) string { return have.remote }, func(local, remote string) *tokenSpace { return t.open(ctx, local, remote) })
	t.mu.Unlock()
	for _, c := range closing {
		c.stop()
		t.forgetNamespace(c)
	}
}

// forgetNamespace deletes the records about the tokens of a namespace that was closed.
func (t *tokens) forgetNamespace(s *tokenSpace) {
	t.bindings.ForgetNamespace(s.local)
	t.secrets.ForgetNamespace(s.remote)
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.tries, func(key loop.Key, _ try) bool { return key.Namespace == s.local })
	maps.DeleteFunc(t.users, func(key loop.Key, _ string) bool { return key.Namespace == s.local })
	maps.DeleteFunc(t.unused, func(key loop.Key, _ time.Time) bool { return key.Namespace == s.local })
}

func (t *tokens) space(namespace string) *tokenSpace {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.spaces[namespace]
}

func (t *tokens) open(ctx context.Context, local, remote string) *tokenSpace {
	cfg := t.pods.cfg
	of := labels.Set(forge.TokenLabels(cfg.Node)).String()
	// Another cluster that shares the namespace writes its own tokens there.
	made := func(o *metav1.ListOptions) { o.LabelSelector = of + ",!" + offloadingv1beta1.OriginLabel }
	sent := func(o *metav1.ListOptions) {
		o.LabelSelector = of + "," + offloadingv1beta1.OriginLabel + "=" + cfg.Origin
	}
	factory := func(c kubernetes.Interface) informers.SharedInformerFactory {
		return informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithTransform(cfg.Transform))
	}
	home, there := factory(cfg.Home), factory(cfg.Remote.Kube)
	accounts := engine.KubeInformer(engine.Factories{Kube: home}, &corev1.ServiceAccount{}, func(c kubernetes.Interface) store.Client[*corev1.ServiceAccountList] {
		return c.CoreV1().ServiceAccounts(local)
	})
	bindings := engine.KubeInformer(engine.Factories{Kube: home, Tweak: made}, &corev1.Secret{}, secretsOf(local))
	secrets := engine.KubeInformer(engine.Factories{Kube: there, Tweak: sent}, &corev1.Secret{}, secretsOf(remote))
	s := &tokenSpace{
		opened:   opened{local: local, remote: remote},
		accounts: corelisters.NewServiceAccountLister(accounts.GetIndexer()).ServiceAccounts(local),
		bindings: corelisters.NewSecretLister(bindings.GetIndexer()).Secrets(local), secrets: corelisters.NewSecretLister(secrets.GetIndexer()).Secrets(remote),
	}
	s.run(ctx, func() {
		t.pods.cfg.Log.Debug("tokens of a namespace known", zap.String("namespace", local))
		t.wakeNamespace(local)
	}, []cache.InformerSynced{
		handled(accounts, t.accountHandler(s)), handled(bindings, t.secretHandler(local, t.bindings)), handled(secrets, t.secretHandler(local, t.secrets)),
	}, home, there)
	return s
}

func secretsOf(namespace string) func(kubernetes.Interface) store.Client[*corev1.SecretList] {
	return func(c kubernetes.Interface) store.Client[*corev1.SecretList] { return c.CoreV1().Secrets(namespace) }
}

// accountHandler enqueues the tokens of a namespace when a service account is created,
// deleted or replaced by another of the same name.
func (t *tokens) accountHandler(s *tokenSpace) cache.ResourceEventHandler {
	changed := func() {
		if s.synced() {
			t.wakeNamespace(s.local)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		DeleteFunc: func(any) { changed() },
		UpdateFunc: func(before, after any) {
			if before.(*corev1.ServiceAccount).UID != after.(*corev1.ServiceAccount).UID {
				changed()
			}
		},
	}
}

// secretHandler is the handler for the Secrets in both clusters, because the two Secrets
// of a token have the same name. own has the recent writes in the cluster of the
// informer.
func (t *tokens) secretHandler(namespace string, own *store.Writes[*corev1.Secret]) cache.ResourceEventHandler {
	wake := func(obj any) {
		if s, ok := obj.(*corev1.Secret); ok {
			t.loop.Wake(loop.Key{Namespace: namespace, Name: s.Name})
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: wake, UpdateFunc: func(_, obj any) { wake(obj) },
		DeleteFunc: func(obj any) {
			if s, ok := loop.Object[*corev1.Secret](obj); ok {
				own.Gone(s)
				wake(s)
			}
		},
	}
}

// podHandler enqueues the tokens of pods that are created or deleted, have ended, or no
// longer need their tokens in the provider.
func (t *tokens) podHandler() cache.ResourceEventHandler {
	wake := func(obj any) {
		if pod, ok := loop.Object[*corev1.Pod](obj); ok {
			t.wakePod(pod)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: wake,
		UpdateFunc: func(before, after any) {
			b, a := before.(*corev1.Pod), after.(*corev1.Pod)
			if b.UID != a.UID || ended(b) != ended(a) || t.pods.carries(b) != t.pods.carries(a) {
				wake(b)
				wake(a)
			}
		},
		DeleteFunc: func(obj any) {
			wake(obj)
			if pod, ok := loop.Object[*corev1.Pod](obj); ok {
				t.forget(pod.UID)
			}
		},
	}
}

func (t *tokens) wakePod(pod *corev1.Pod) {
	for _, key := range t.keysOf(pod) {
		t.loop.Wake(key)
	}
}

// keysOf returns the tokens that a pod needs or may have. Tokens of the other setting are
// included only if they exist: the sync of a token that no pod uses checks all pods that
// the index finds.
func (t *tokens) keysOf(pod *corev1.Pod) []loop.Key {
	var out []loop.Key
	for _, token := range t.pods.tokensOf(pod) {
		out = append(out, loop.Key{Namespace: pod.Namespace, Name: token.Name})
	}
	space, tw := t.space(pod.Namespace), t.pods.twins.get(pod.Namespace)
	if space == nil || tw == nil {
		return out // wakeNamespace follows when the caches have synced
	}
	shadow := t.shadow(tw, pod)
	for _, token := range t.pods.otherTokens(pod) {
		if space.has(token.Name) || (shadow != nil && forge.MountsSecret(&shadow.Spec.Pod, token.Name)) {
			out = append(out, loop.Key{Namespace: pod.Namespace, Name: token.Name})
		}
	}
	return out
}

// has reports whether one of the two Secrets of a token is in the caches.
func (s *tokenSpace) has(name string) bool {
	_, noBinding := s.bindings.Get(name)
	_, noSecret := s.secrets.Get(name)
	return noBinding == nil || noSecret == nil
}

// wakeName enqueues the tokens of the pod of this name, after its ShadowPod has appeared.
func (t *tokens) wakeName(namespace, name string) {
	if pod, err := t.pods.cfg.Pods.Lister().Pods(namespace).Get(name); err == nil {
		t.wakePod(pod)
	}
}

// wakeNamespace enqueues all tokens of a namespace, or of all namespaces if it is empty.
func (t *tokens) wakeNamespace(namespace string) {
	for _, key := range t.keys(namespace) {
		t.loop.Wake(key)
	}
}

// keys returns the tokens that the pods of a namespace need or have, and those that
// exist. An empty namespace means all namespaces.
func (t *tokens) keys(namespace string) []loop.Key {
	var out []loop.Key
	for _, pod := range t.pods.localPods(namespace) {
		out = append(out, t.keysOf(pod)...)
	}
	for _, s := range t.known(namespace) {
		for _, lister := range []corelisters.SecretNamespaceLister{s.bindings, s.secrets} {
			found, err := lister.List(labels.Everything())
			if err != nil {
				continue // listing fails only for a broken index
			}
			for _, secret := range found {
				out = append(out, loop.Key{Namespace: s.local, Name: secret.Name})
			}
		}
	}
	return out
}

func (t *tokens) known(namespace string) []*tokenSpace {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []*tokenSpace
	for local, s := range t.spaces {
		if namespace == corev1.NamespaceAll || namespace == local {
			out = append(out, s)
		}
	}
	return out
}
