package plan

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const page = "../../docs/internals/packet-path.md"

// numbers are all constants of numbers.go, as the page writes them.
var numbers = map[string]string{
	"DevicePrefix":      DevicePrefix,
	"OverlayDevice":     OverlayDevice,
	"TunnelDevice":      TunnelDevice,
	"AllDevices":        AllDevices,
	"OutsideDevices":    OutsideDevices,
	"OverlayID":         fmt.Sprint(OverlayID),
	"TunnelMark":        fmt.Sprintf("%#x", TunnelMark),
	"TunnelKeepalive":   TunnelKeepalive.String(),
	"OverlayPort":       fmt.Sprint(OverlayPort),
	"TunnelPort":        fmt.Sprint(TunnelPort),
	"ProbePort":         fmt.Sprint(ProbePort),
	"RouteProtocol":     fmt.Sprint(RouteProtocol),
	"PeersTable":        fmt.Sprint(PeersTable),
	"InsideTable":       fmt.Sprint(InsideTable),
	"SkipPriority":      fmt.Sprint(SkipPriority),
	"PeersPriority":     fmt.Sprint(PeersPriority),
	"InsidePriority":    fmt.Sprint(InsidePriority),
	"EndPriority":       fmt.Sprint(EndPriority),
	"TableName":         TableName,
	"RawPriority":       fmt.Sprint(RawPriority),
	"ManglePriority":    fmt.Sprint(ManglePriority),
	"HomeInPriority":    fmt.Sprint(HomeInPriority),
	"HomeOutPriority":   fmt.Sprint(HomeOutPriority),
	"DNATPriority":      fmt.Sprint(DNATPriority),
	"FilterPriority":    fmt.Sprint(FilterPriority),
	"SNATPriority":      fmt.Sprint(SNATPriority),
	"LastGuardPriority": fmt.Sprint(LastGuardPriority),
	"GatewayOffset":     fmt.Sprint(GatewayOffset),
	"MaxReplicas":       fmt.Sprint(MaxReplicas),
	"ReservedAddresses": fmt.Sprint(ReservedAddresses),
}

// rows are the cells of the table that follows a comment in the page, without its head.
func rows(t *testing.T, comment string) (out [][]string) {
	t.Helper()
	data, err := os.ReadFile(page)
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(data), "<!-- "+comment+" -->\n")
	require.True(t, ok, "%s has no comment %q", page, comment)
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(line, "| \n"), "|") {
			cells = append(cells, strings.Trim(cell, " `"))
		}
		out = append(out, cells)
	}
	require.Greater(t, len(out), 2)
	return out[2:]
}

func TestPageHasTheNumbers(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "numbers.go", nil, 0)
	require.NoError(t, err)
	var names []string
	for _, d := range file.Decls {
		for _, s := range d.(*ast.GenDecl).Specs {
			if v, ok := s.(*ast.ValueSpec); ok {
				names = append(names, v.Names[0].Name)
			}
		}
	}
	have := map[string]string{}
	for _, cells := range rows(t, "numbers") {
		have[cells[1]] = cells[2]
	}
	require.Equal(t, numbers, have)
	require.Len(t, names, len(numbers), "a constant of numbers.go is not in this test")
	for _, name := range names {
		require.Contains(t, numbers, name)
	}
}

// The page has each chain and each set. The rows of chains are in the order in which a packet meets them.
func TestPageHasTheChains(t *testing.T) {
	t.Parallel()
	states := planned(t)
	for comment, table := range map[string]Table{
		"chains of a node":    states["node"].Table,
		"chains of a gateway": states["gateway"].Table,
	} {
		var want, have []string
		named, last := map[string]bool{}, map[string]int{}
		for _, c := range table.Chains {
			if c.Hook != "" {
				want = append(want, fmt.Sprintf("%s %s %d", c.Hook, c.Name, c.Priority))
			}
		}
		for _, cells := range rows(t, comment) {
			have = append(have, strings.Join(cells[:3], " "))
			priority, err := strconv.Atoi(cells[2])
			require.NoError(t, err)
			before, ok := last[cells[0]]
			require.True(t, !ok || before < priority, "%s: %v", comment, cells)
			last[cells[0]] = priority
			for _, word := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[3], -1) {
				named[word[1]] = true
			}
		}
		require.ElementsMatch(t, want, have, comment)
		for _, s := range table.Sets {
			require.True(t, named[strings.TrimRight(s.Name, "46")], "%s: no word of the set %s", comment, s.Name)
		}
	}
}

func TestPageHasTheSizes(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, row := range []string{
		fmt.Sprintf("| VXLAN over IPv4 | %d | `%s` %d |", 1500-OverlayMTU(1500, V4), OverlayDevice, OverlayMTU(1500, V4)),
		fmt.Sprintf("| VXLAN over IPv6 | %d | `%s` %d |", 1500-OverlayMTU(1500, V6), OverlayDevice, OverlayMTU(1500, V6)),
		fmt.Sprintf("| WireGuard, over either | %d | `%s` %d |", 1500-TunnelMTU(1500), TunnelDevice, TunnelMTU(1500)),
		fmt.Sprintf("| %d, TCP segments %d |", PathMTU(1500, V4, 0), PathMTU(1500, V4, 0)-40),
		fmt.Sprintf("| +%d | all gateways:", GatewayOffset),
		fmt.Sprintf("| +%d to +%d | replica 1 to %d,", GatewayOffset+1, GatewayOffset+MaxReplicas, MaxReplicas),
		fmt.Sprintf("| +%d and up | `IP` resources |", ReservedAddresses),
	} {
		require.Contains(t, string(data), row)
	}
	require.Contains(t, string(data), fmt.Sprintf("a gateway pod in an overlay network of 1450 gives %d", PathMTU(1450, V4, 0)))
}

// The routing rules on the page are those of a node and of a gateway.
func TestPageHasTheRules(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(page)
	require.NoError(t, err)
	_, node, _ := strings.Cut(string(data), "\n## On a node\n")
	node, gateway, _ := strings.Cut(node, "\n## On a gateway\n")
	for text, s := range map[string]State{node: planned(t)["node"], gateway: planned(t)["gateway"]} {
		have := map[string]bool{}
		for _, match := range regexp.MustCompile(`(?m)^\| (\d+) \|.*?\|([^|]*)\|`).FindAllStringSubmatch(text, -1) {
			have[match[1]] = true
		}
		want := map[string]bool{}
		for _, r := range s.Rules {
			want[fmt.Sprint(r.Priority)] = true
		}
		require.Equal(t, want, have)
	}
}

// The traces on the page are those of a packet through rome and milan, there and back.
func TestPageHasTheTraces(t *testing.T) {
	t.Parallel()
	w := romeAndMilan(t)
	there := tcp("10.244.1.10", "10.200.2.20")
	lines, last := w.walk("rome rome-1", there)
	compareTrace(t, "there", lines)
	lines, _ = w.walk("milan milan-2", answer(last.Packet, "veth0"))
	compareTrace(t, "back", lines)
}

// walk follows p like follow, and returns all steps as lines.
func (w *world) walk(host string, p Packet) (lines []string, last Step) {
	w.t.Helper()
	for range 8 {
		p.Flow = w.flows[host]
		lines = append(lines, host)
		for _, s := range Trace(w.hosts[host], p) {
			lines = append(lines, "  "+strings.NewReplacer(key(1), "(key of rome)", key(11), "(key of milan)").Replace(s.String()))
			last = s
		}
		w.flows[host] = last.Packet.Flow
		if last.Verdict != Sent {
			return lines, last
		}
		host, p = w.next(host, last)
	}
	require.Fail(w.t, "the packet goes round in circles")
	return nil, last
}

func compareTrace(t *testing.T, name string, lines []string) {
	t.Helper()
	data, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(data), "<!-- trace "+name+" -->\n```\n")
	require.True(t, ok, "%s has no trace %s", page, name)
	have, after, ok := strings.Cut(rest, "```\n")
	require.True(t, ok)
	want := strings.Join(lines, "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(before+"<!-- trace "+name+" -->\n```\n"+want+"```\n"+after), 0o644))
		return
	}
	require.True(t, want == have, "go test ./netfabric/plan -run TestPageHasTheTraces -update writes it")
}
