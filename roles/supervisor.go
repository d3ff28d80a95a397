package roles

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.uber.org/zap"
)

// supervisor runs actors until its context is done or one of them fails.
type supervisor struct {
	log      *zap.Logger
	actors   []Actor
	stopping chan struct{} // closed when the context of the actors is done

	alive sync.Map // names of the actors that have not returned
}

func newSupervisor(log *zap.Logger) *supervisor {
	return &supervisor{log: log, stopping: make(chan struct{})}
}

// add adds the actors of a role. The leased actors become one actor that stands for
// election. It calls onLead at the beginning and the end of each term, and once with false
// before the first term.
func (s *supervisor) add(role string, parts Parts, onLead func(leads bool)) error {
	var leased []Actor
	for _, a := range parts.Actors {
		a.Name = role + "/" + a.Name
		if a.Leased {
			leased = append(leased, a)
			continue
		}
		s.actors = append(s.actors, a)
	}
	if len(leased) == 0 {
		return nil
	}
	if parts.Leader == nil {
		return fmt.Errorf("actor %s is leased, but the role has no leader", leased[0].Name)
	}
	onLead(false)
	s.actors = append(s.actors, Actor{Name: role + "/lease", Run: func(ctx context.Context) error {
		return parts.Leader.Run(ctx, func(ctx context.Context) error {
			s.log.Info("leading", zap.String("role", role))
			onLead(true)
			defer onLead(false)
			err := s.together(ctx, leased)
			s.log.Info("not leading any more", zap.String("role", role))
			return err
		})
	}})
	return nil
}

// run blocks until every actor has returned.
func (s *supervisor) run(ctx context.Context) error {
	return s.together(ctx, s.actors, func(ctx context.Context) error {
		<-ctx.Done()
		close(s.stopping)
		return nil
	})
}

func (s *supervisor) together(ctx context.Context, actors []Actor, runs ...func(context.Context) error) error {
	for _, a := range actors {
		runs = append(runs, func(ctx context.Context) error { return s.one(ctx, a) })
	}
	return together(runs...)(ctx)
}

// one runs an actor. It logs an error that the actor returns after ctx is done, because that
// error did not cause the end of the process.
func (s *supervisor) one(ctx context.Context, a Actor) error {
	s.alive.Store(a.Name, true)
	defer s.alive.Delete(a.Name)
	err := a.Run(ctx)
	switch {
	case ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)):
		return nil
	case ctx.Err() != nil:
		s.log.Warn("actor stopped with an error", zap.String("actor", a.Name), zap.Error(err))
		return nil
	case err == nil:
		err = errors.New("ended by itself")
	}
	// The error is also returned, but the process may miss the deadline of the shutdown
	// and report that instead.
	s.log.Error("actor failed; stopping", zap.String("actor", a.Name), zap.Error(err))
	return fmt.Errorf("%s: %w", a.Name, err)
}

func (s *supervisor) isStopping() bool {
	select {
	case <-s.stopping:
		return true
	default:
		return false
	}
}

// running returns the names of the actors that have not returned, sorted.
func (s *supervisor) running() (names []string) {
	for name := range s.alive.Range {
		names = append(names, fmt.Sprint(name))
	}
	slices.Sort(names)
	return names
}
