// Package promql tests what the chart brings for Prometheus and Grafana, with Prometheus' own
// engine and with what the roles measured in clusters. It is a module of its own: the program
// needs none of this.
package promql

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/require"
)

// interval is the time between scrapes that continue a recording.
const interval = 30 * time.Second

// point is one value of a series, NaN of the kind "stale" where a scrape did not have it.
type point struct {
	ms    int64
	value float64
}

// series are the values of one set of labels.
type series struct {
	labels labels.Labels
	points []point
}

// recording is what the roles of a cluster measured.
type recording struct {
	times  []int64 // of the scrapes, in milliseconds
	series []series
}

func parse() parser.Parser { return parser.NewParser(parser.Options{}) }

// read reads a file that TestPartition of e2e/scenarios wrote.
func read(t *testing.T, name string) recording {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
	require.NoError(t, err)
	r, err := parseRecording(string(data))
	require.NoError(t, err, name)
	return r
}

func parseRecording(text string) (r recording, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || line == "" {
			continue
		}
		if at, ok := strings.CutPrefix(line, "at "); ok {
			for _, second := range strings.Fields(at) {
				s, err := strconv.ParseInt(second, 10, 64)
				if err != nil {
					return r, fmt.Errorf("reading the times: %w", err)
				}
				r.times = append(r.times, s*1000)
			}
			continue
		}
		s, err := parseSeries(line, r.times)
		if err != nil {
			return r, fmt.Errorf("%s: %w", line, err)
		}
		r.series = append(r.series, s)
	}
	return r, nil
}

// parseSeries reads a line: labels, and values with the number of scrapes that had them.
func parseSeries(line string, times []int64) (s series, err error) {
	end := strings.LastIndex(line, "}") + 1
	if s.labels, err = parse().ParseMetric(line[:end]); err != nil {
		return s, err
	}
	for _, run := range strings.Fields(line[end:]) {
		text, count, _ := strings.Cut(run, "*")
		n, err := strconv.Atoi(count)
		if err != nil {
			return s, err
		}
		v := math.Float64frombits(value.StaleNaN)
		if text != "-" {
			if v, err = strconv.ParseFloat(text, 64); err != nil {
				return s, err
			}
		}
		for range n {
			if len(s.points) == len(times) {
				return s, errors.New("more values than scrapes")
			}
			s.points = append(s.points, point{times[len(s.points)], v})
		}
	}
	if len(s.points) != len(times) {
		return s, fmt.Errorf("%d values of %d scrapes", len(s.points), len(times))
	}
	return s, nil
}

// end is the time of the last scrape.
func (r recording) end() time.Time { return time.UnixMilli(r.times[len(r.times)-1]) }

var counts = regexp.MustCompile(`_(total|bucket|sum|count)$`)

// continued is the recording with further scrapes for some time: counters go on at their rate,
// and gauges stay.
func (r recording) continued(d time.Duration) recording {
	out := recording{times: r.times}
	for ms := interval.Milliseconds(); ms <= d.Milliseconds(); ms += interval.Milliseconds() {
		out.times = append(out.times[:len(out.times):len(out.times)], r.end().UnixMilli()+ms)
	}
	for _, s := range r.series {
		first, last := s.first(), s.points[len(s.points)-1]
		slope := (last.value - first.value) / float64(last.ms-first.ms)
		if math.IsNaN(slope) || slope < 0 || !counts.MatchString(s.labels.Get(labels.MetricName)) {
			slope = 0
		}
		more := series{labels: s.labels, points: s.points[:len(s.points):len(s.points)]}
		for _, ms := range out.times[len(r.times):] {
			v := last.value
			if slope > 0 {
				v += slope * float64(ms-last.ms)
			}
			more.points = append(more.points, point{ms, v})
		}
		out.series = append(out.series, more)
	}
	return out
}

// first is the first point that a scrape had.
func (s series) first() point {
	for _, p := range s.points {
		if !math.IsNaN(p.value) {
			return p
		}
	}
	return s.points[0]
}

// change gives series other values than those that were recorded.
type change struct {
	series string // labels that they have; without such a series one with these labels is added
	value  float64
	rate   float64 // growth for each second
}

// changed is the recording with changes.
func (r recording) changed(t *testing.T, changes []change) recording {
	t.Helper()
	out := recording{times: r.times, series: append([]series(nil), r.series...)}
	for _, c := range changes {
		want, err := parse().ParseMetric(c.series)
		require.NoError(t, err, c.series)
		points := make([]point, len(r.times))
		for i, ms := range r.times {
			points[i] = point{ms, c.value + c.rate*float64(ms-r.times[0])/1000}
		}
		found := false
		for i, s := range out.series {
			if has(s.labels, want) {
				out.series[i], found = series{s.labels, points}, true
			}
		}
		if !found {
			out.series = append(out.series, series{want, points})
		}
	}
	return out
}

// has says whether all labels are among those of a series.
func has(all, want labels.Labels) bool {
	same := true
	want.Range(func(l labels.Label) { same = same && all.Get(l.Name) == l.Value })
	return same
}

// query evaluates an expression at a time: the labels and values of its result.
func (r recording) query(t *testing.T, expr string, at time.Time) map[string]float64 {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1 << 20, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: parse(),
	})
	q, err := engine.NewInstantQuery(t.Context(), r, nil, expr, at)
	require.NoError(t, err, expr)
	defer q.Close()
	result := q.Exec(t.Context())
	require.NoError(t, result.Err, expr)
	vector, err := result.Vector()
	require.NoError(t, err, expr)
	out := map[string]float64{}
	for _, s := range vector {
		out[s.Metric.String()] = s.F
	}
	return out
}

// Querier implements storage.Queryable.
func (r recording) Querier(mint, maxt int64) (storage.Querier, error) {
	return querier{r, mint, maxt}, nil
}

// querier reads a part of a recording.
type querier struct {
	recording
	mint, maxt int64
}

// Select implements storage.Querier.
func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	set := &found{at: -1}
	for _, s := range q.series {
		if !matches(s.labels, matchers) {
			continue
		}
		var samples []chunks.Sample
		for i, p := range s.points {
			gone := value.IsStaleNaN(p.value) && (i == 0 || value.IsStaleNaN(s.points[i-1].value))
			if p.ms >= q.mint && p.ms <= q.maxt && !gone { // Prometheus marks the first scrape without it
				samples = append(samples, sample(p))
			}
		}
		set.all = append(set.all, storage.NewListSeries(s.labels, samples))
	}
	return set
}

func matches(all labels.Labels, matchers []*labels.Matcher) bool {
	for _, m := range matchers {
		if !m.Matches(all.Get(m.Name)) {
			return false
		}
	}
	return true
}

// LabelValues implements storage.Querier.
func (querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.New("not asked for by the engine")
}

// LabelNames implements storage.Querier.
func (querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.New("not asked for by the engine")
}

// Close implements storage.Querier.
func (querier) Close() error { return nil }

// found are the series of a Select.
type found struct {
	all []storage.Series
	at  int
}

// Next implements storage.SeriesSet.
func (f *found) Next() bool { f.at++; return f.at < len(f.all) }

// At implements storage.SeriesSet.
func (f *found) At() storage.Series { return f.all[f.at] }

// Err implements storage.SeriesSet.
func (*found) Err() error { return nil }

// Warnings implements storage.SeriesSet.
func (*found) Warnings() annotations.Annotations { return nil }

// sample is a point as the engine reads it.
type sample point

// T, ST, F, H, FH, Type and Copy implement chunks.Sample.
func (s sample) T() int64 { return s.ms }

func (sample) ST() int64 { return 0 }

func (s sample) F() float64 { return s.value }

func (sample) H() *histogram.Histogram { return nil }

func (sample) FH() *histogram.FloatHistogram { return nil }

func (sample) Type() chunkenc.ValueType { return chunkenc.ValFloat }

func (s sample) Copy() chunks.Sample { return s }

// TestContinued: counters go on, gauges stay, and what is gone stays gone.
func TestContinued(t *testing.T) {
	t.Parallel()
	r, err := parseRecording("# a comment\nat 100 105 110\na_total{} 10*1 15*1 20*1\nage{} 1*1 6*1 11*1\nlevel{} 1*1 3*1 2*1\n" +
		"gone{} 1*2 -*1\nlate_total{} -*1 1*1 6*1\n")
	require.NoError(t, err)
	all := r.continued(10 * time.Minute)
	at := r.end().Add(10 * time.Minute)
	for expr, want := range map[string]float64{
		`rate(a_total[5m])`: 1, `rate(late_total[5m])`: 1, `age`: 11, `level`: 2, `absent(gone)`: 1, `increase(a_total[1m]) > bool 59`: 1,
	} {
		got := all.query(t, expr, at)
		require.Len(t, got, 1, expr)
		for _, v := range got {
			require.InDelta(t, want, v, 1e-9, expr)
		}
	}
	require.Empty(t, r.query(t, `gone`, r.end()))
	require.Empty(t, r.query(t, `late_total`, time.Unix(100, 0)))
	for text, says := range map[string]string{
		"at 1 2\na{} 1*3\n": "more values than scrapes", "at 1 2\na{} 1*1\n": "1 values of 2 scrapes", "at 1\na{b} 1*1\n": "unexpected", "at x\n": "reading the times",
	} {
		_, err := parseRecording(text)
		require.ErrorContains(t, err, says, text)
	}
}

// TestChanged: a change meets each series that has its labels, or adds one.
func TestChanged(t *testing.T) {
	t.Parallel()
	r, err := parseRecording("at 100 110\na{x=\"1\",y=\"1\"} 1*2\na{x=\"1\",y=\"2\"} 1*2\na{x=\"2\",y=\"2\"} 1*2\n")
	require.NoError(t, err)
	changed := r.changed(t, []change{{series: `a{x="1"}`, value: 5, rate: 2}, {series: `b{x="3"}`, value: 7}})
	require.Equal(t, map[string]float64{`{x="1"}`: 25, `{x="2"}`: 1}, changed.query(t, `max by (x) (a)`, r.end()))
	require.Equal(t, map[string]float64{`{x="3"}`: 7}, changed.query(t, `max by (x) (b)`, r.end()))
	require.Equal(t, map[string]float64{`{x="1"}`: 1, `{x="2"}`: 1}, r.query(t, `max by (x) (a)`, r.end()), "the original stays")
}
