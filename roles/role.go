// Package roles has the entry points of the binary: the list of roles, their wiring, the
// process around them, and the commands. It is the only package that imports all domains.
// Only package main imports it.
package roles

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/roles/cmd"
	"github.com/liqod/liqod/roles/config"
)

// A Role is one job of the binary.
type Role struct {
	// Name selects the role: --role=NAME.
	Name string
	// Short describes the role in one line.
	Short string
	// Build wires the role and starts nothing. It is nil if this version lacks the role.
	Build func(ctx context.Context, env Env) (Parts, error)
}

// Parts has the actors of a role and its leader.
type Parts struct {
	// Actors run concurrently. If one fails, the process ends.
	Actors []Actor
	// Leader runs the leased actors under one lease. It is nil if there are none.
	Leader Leader
}

// An Actor runs until ctx is done. It then waits for everything that it has started, and
// returns nil. An actor that returns earlier has failed.
type Actor struct {
	// Name is the name of the actor in logs and errors.
	Name string
	// Leased actors run only while this replica leads. Run is called again for each term.
	Leased bool
	// Run blocks. Its error ends the process, unless the lease has been lost.
	Run func(ctx context.Context) error
}

// A Leader runs work once for each term in which this process leads, until ctx is done. The
// context of work ends when the lease is lost. A Leader waits for work to return before it
// stands for election again or releases the lease. lease.Runner is a Leader.
type Leader interface {
	Run(ctx context.Context, work func(ctx context.Context) error) error
}

// Env is the input of a role.
type Env struct {
	// Config is the effective configuration. It is validated for this role.
	Config *config.Effective
	// Log is the logger of the role.
	Log *zap.Logger
	// Registry registers metrics. Their names are liqod_<subsystem>_<what>_<unit>.
	Registry *registry
	// Observer is the observer of all loops of the role. It updates metrics and /livez.
	Observer loop.Observer
	// Tracker detects late loops. A role calls Forget for a loop that ends before the
	// process.
	Tracker *health.Tracker
	// Requests returns the observer of the clients of one API server. server is "home" or
	// the name of a peer.
	Requests func(server string) client.Observer
	// Expiries collects the lives of the role's certificates. It may be nil.
	Expiries *expiries
	// Refused counts what was refused of what a peer sent, and why.
	Refused func(peer, reason string)
	// Closed counts the connections to a server that it closed because there were too many.
	Closed func(server string)
	// Denied counts what a consumer tried and this cluster refused or left out, and why.
	Denied func(consumer, reason string)
	// Ready has the checks of /readyz.
	Ready *health.Checks
	// Clock is the real clock.
	Clock clock.WithTicker
	// Version is the version of the binary.
	Version string
	// UserAgent is the user agent of all clients of the role.
	UserAgent string
}

// component returns what every component gets.
func (e Env) component() loop.Env {
	return loop.Env{Clock: e.Clock, Log: e.Log, Observer: e.Observer}
}

// find returns the roles with these names. Its error names the first name that is not
// accepted, and has the exit code of a wrong command line.
func find(all []Role, names []string) ([]Role, error) {
	if len(names) == 0 {
		return nil, cmd.Usagef("no role given: --role=NAME, one or more of %s", strings.Join(roleNames(all), ", "))
	}
	var found []Role
	for _, name := range names {
		i := slices.IndexFunc(all, func(r Role) bool { return r.Name == name })
		switch {
		case i < 0:
			return nil, cmd.Usagef("role %q is not accepted: one or more of %s", name, strings.Join(roleNames(all), ", "))
		case slices.ContainsFunc(found, func(r Role) bool { return r.Name == name }):
			return nil, cmd.Usagef("role %s is given twice", name)
		}
		found = append(found, all[i])
	}
	return found, nil
}

// runsOn returns an error for roles on another system than Linux: they need its networks and its clocks.
func runsOn(system string, roles []Role) error {
	if system == "linux" {
		return nil
	}
	return fmt.Errorf("role %s: roles run on Linux only; this program, for %s, has the commands", strings.Join(roleNames(roles), ", "), system)
}

func roleNames(roles []Role) (names []string) {
	for _, r := range roles {
		names = append(names, r.Name)
	}
	return names
}
