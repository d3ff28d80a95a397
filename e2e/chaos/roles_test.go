package chaos

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/liqod/liqod/e2e/lab"
)

// Roles that are attacked.
const (
	vkubelet        = "vkubelet"
	romeController  = "controller of rome"
	milanController = "controller of milan"
	romeWebhook     = "webhook of rome"
)

const peerUser = "system:serviceaccount:liqo-tenant-rome:peer-1"

// roleOf tells which role sent a request to a cluster, "" if it is not one that is attacked.
func roleOf(cluster string, r lab.Request) string {
	_, kind, found := strings.Cut(r.UserAgent, " ")
	home := cluster == "rome" || r.User == peerUser
	switch {
	case !found || !strings.HasPrefix(r.UserAgent, "liqod/"):
		return ""
	case kind == "vkubelet":
		return vkubelet
	case kind == "controller" && home:
		return romeController
	case kind == "controller":
		return milanController
	case kind == "webhook" && home:
		return romeWebhook
	}
	return ""
}

// roles are the processes under attack, by name.
type roles struct {
	byName map[string]*role
}

// role is a process that is killed and started again at once, as the container of a pod
// is: its successor has its name in the elections.
type role struct {
	name    string
	restart func(**lab.Process) error

	mu     sync.Mutex // held while the process is being replaced
	target **lab.Process
	// doomed: nothing that the process still sends may arrive.
	doomed atomic.Bool
	kills  atomic.Int64
	// broken has the first failure to start it again.
	broken atomic.Pointer[error]
}

func newRoles(w *world) (*roles, error) {
	r := &roles{byName: map[string]*role{}}
	for name, target := range map[string]**lab.Process{
		vkubelet: w.rome.VKubelet("milan"), romeController: &w.rome.Controller, milanController: &w.milan.Controller, romeWebhook: &w.rome.Webhook,
	} {
		one := &role{name: name, target: target, restart: w.sites.Restart}
		(*target).Options.Env = append((*target).Options.Env, "POD_NAME="+strings.ReplaceAll(name, " ", "-"))
		if err := one.again(); err != nil {
			return nil, err
		}
		r.byName[name] = one
	}
	return r, nil
}

// again kills the process, if it runs, and starts it.
func (r *role) again() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.replace()
}

func (r *role) replace() error {
	(*r.target).Kill()
	err := r.restart(r.target)
	if err != nil {
		err = fmt.Errorf("starting the %s again: %w", r.name, err)
		r.broken.CompareAndSwap(nil, &err)
	}
	r.doomed.Store(false)
	return err
}

// kill ends the process at once; when it returns the process is dead, and is being
// started again.
func (r *role) kill() {
	r.mu.Lock()
	(*r.target).Kill()
	r.kills.Add(1)
	go func() {
		defer r.mu.Unlock()
		_ = r.replace() // kept in broken
	}()
}

func (r *roles) kills() (n int64) {
	for _, one := range r.byName {
		n += one.kills.Load()
	}
	return n
}

func (r *roles) err() error {
	for _, one := range r.byName {
		if err := one.broken.Load(); err != nil {
			return *err
		}
	}
	return nil
}
