package roles

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/liqod/liqod/kube/kubetest"
)

// diary records what happens, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) add(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

func (d *diary) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	return lines
}

// until returns an actor that works until it is told to stop, and linger longer.
func (d *diary) until(name string, leased bool, linger time.Duration) Actor {
	return Actor{Name: name, Leased: leased, Run: func(ctx context.Context) error {
		d.add(name + " runs")
		<-ctx.Done()
		time.Sleep(linger) // the bubble's clock
		d.add(name + " stopped")
		return nil
	}}
}

// terms is a Leader whose terms are what the test sends: a term ends when its context does.
type terms chan context.Context

func (l terms) Run(ctx context.Context, work func(context.Context) error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case term := <-l:
			workCtx, cancel := context.WithCancel(ctx)
			stop := context.AfterFunc(term, cancel)
			err := work(workCtx)
			ended := workCtx.Err() == nil
			stop()
			cancel()
			if ended || err != nil {
				return err
			}
		}
	}
}

func TestLeasedActorsComeAndGoWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, leader, s := &diary{}, make(terms), newSupervisor(zap.NewNop())
		err := s.add("controller", Parts{Leader: leader, Actors: []Actor{
			d.until("serving", false, 0), d.until("loops", true, time.Second),
		}}, func(leads bool) { d.add(map[bool]string{true: "leads", false: "stands by"}[leads]) })
		require.NoError(t, err)
		require.Equal(t, []string{"stands by"}, d.take(), "before the first term")

		stop := kubetest.Run(t, s.run)
		synctest.Wait()
		require.Equal(t, []string{"serving runs"}, d.take())

		for range 2 {
			term, lose := context.WithCancel(t.Context())
			leader <- term
			synctest.Wait()
			require.Equal(t, []string{"leads", "loops runs"}, d.take())
			require.Equal(t, []string{"controller/lease", "controller/loops", "controller/serving"}, s.running())
			lose()
			time.Sleep(2 * time.Second) // the bubble's clock
			require.Equal(t, []string{"loops stopped", "stands by"}, d.take(), "the lease is lost, the process stays")
		}

		leader <- t.Context()
		synctest.Wait()
		d.take()
		stop()
		require.ElementsMatch(t, []string{"serving stopped", "loops stopped", "stands by"}, d.take(), "run waits for all")
		require.True(t, s.isStopping())
		require.Empty(t, s.running())
	})
}

func TestTheFirstFailureStopsAll(t *testing.T) {
	broken := errors.New("broken")
	fail := func(leased bool, err error) Actor {
		return Actor{Name: "bad", Leased: leased, Run: func(context.Context) error {
			time.Sleep(time.Second) // the bubble's clock
			return err
		}}
	}
	for name, tc := range map[string]struct {
		actor Actor
		want  string
	}{
		"an error":               {fail(false, broken), "webhook/bad: broken"},
		"an end without a cause": {fail(false, nil), "webhook/bad: ended by itself"},
		"an error under a lease": {fail(true, broken), "webhook/lease: webhook/bad: broken"},
		"an end under a lease":   {fail(true, nil), "webhook/lease: webhook/bad: ended by itself"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, leader, s := &diary{}, make(terms, 1), newSupervisor(zap.NewNop())
				require.NoError(t, s.add("webhook", Parts{Leader: leader, Actors: []Actor{
					d.until("good", false, time.Second), tc.actor,
				}}, func(bool) {}))
				leader <- t.Context()
				require.EqualError(t, s.run(t.Context()), tc.want)
				require.Equal(t, []string{"good runs", "good stopped"}, d.take())
			})
		})
	}
}

func TestAnErrorAfterTheEndIsNotWhyItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(zap.NewNop())
		require.NoError(t, s.add("webhook", Parts{Actors: []Actor{
			{Name: "a", Run: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
			{Name: "b", Run: func(ctx context.Context) error { <-ctx.Done(); return errors.New("connection closed") }},
		}}, func(bool) {}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, s.run(ctx))
	})
}

func TestLeasedActorsNeedALeader(t *testing.T) {
	err := newSupervisor(zap.NewNop()).add("x", Parts{Actors: []Actor{{Name: "loops", Leased: true}}}, func(bool) {})
	require.EqualError(t, err, "actor x/loops is leased, but the role has no leader")
}
