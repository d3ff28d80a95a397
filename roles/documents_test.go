package roles

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/roles/config"
)

var (
	fence      = regexp.MustCompile("(?s)```(?:bash|sh|console)?\n(.*?)```")
	inlineCode = regexp.MustCompile("`((?:liqod|kubectl liqo) [^`\n]+)`")
	// separators end one command of a shell line and begin the next.
	separators = regexp.MustCompile(`\|\||&&|[|;<>]|\s#`)
	// word is one of a shell line; blanks in quotes do not end it.
	word = regexp.MustCompile(`(?:[^\s'"]|'[^']*'|"[^"]*")+`)
)

// TestCommandsInDocuments: every liqod command that a document shows exists, with its flags.
func TestCommandsInDocuments(t *testing.T) {
	pages := must(filepath.Glob("../docs/*.md"))
	require.NotEmpty(t, pages)
	internals := must(filepath.Glob("../docs/internals/*.md"))
	require.NotEmpty(t, internals)
	pages = append(pages, internals...)
	checked := 0
	for _, page := range append(pages, "../README.md", "../CONTRIBUTING.md") {
		data := must(os.ReadFile(page))
		typed, mentioned := shown(string(data))
		for _, line := range typed {
			require.NoErrorf(t, accepts(t, line, true), "%s shows the command %q", page, strings.Join(line, " "))
		}
		for _, line := range mentioned {
			require.NoErrorf(t, accepts(t, line, false), "%s mentions the command %q", page, strings.Join(line, " "))
		}
		checked += len(typed) + len(mentioned)
	}
	require.NotZero(t, checked)
}

// TestShownCommands: commands are found wherever a page shows them, and wrong ones are refused.
func TestShownCommands(t *testing.T) {
	page := "Run `liqod status -o json`, or `kubectl liqo check`; `liqod-auth` and `liqod 0.1.0` are none.\n" +
		"```bash\nsudo liqod cleanup   # as root\nliqod generate peering --token=- < token | kubectl apply -f -\n```\n" +
		"```\n$ liqod peer \\\n  --token liqod1.eyJp…\nliqod is installed\n```\n"
	typed, mentioned := shown(page)
	require.Equal(t, [][]string{{"cleanup"}, {"generate", "peering", "--token=-"}, {"peer", "--token", "liqod1.eyJp…"}}, typed)
	require.Equal(t, [][]string{{"status", "-o", "json"}, {"check"}}, mentioned)
	for _, line := range []string{"status milan", "offload namespace shop -l a=b", "--role=gateway --gateway.mtu=1400", "--help", "config --role=ipam"} {
		require.NoError(t, accepts(t, strings.Fields(line), true), line)
	}
	for _, line := range []string{"statsu", "status --colour", "offload namespace", "unpeer", "status --timeout=soon", "--gateway.nothing=1"} {
		require.Error(t, accepts(t, strings.Fields(line), true), line)
	}
	require.NoError(t, accepts(t, []string{"unpeer"}, false))
	require.NoError(t, accepts(t, []string{"unpeer", "--timeout"}, false))
	require.Error(t, accepts(t, []string{"unpeer", "--now"}, false))
}

// shown are the arguments of the liqod commands in a page: those in fences, which a reader
// types, and those in its text, which may lack arguments.
func shown(page string) (typed, mentioned [][]string) {
	for _, block := range fence.FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(strings.ReplaceAll(block[1], "\\\n", " ")) {
			for _, command := range separators.Split(line, -1) {
				typed = append(typed, arguments(command)...)
			}
		}
	}
	for _, code := range inlineCode.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		mentioned = append(mentioned, arguments(separators.Split(code[1], -1)[0])...)
	}
	return typed, mentioned
}

// arguments returns those of a liqod command; nothing for another text.
func arguments(text string) [][]string {
	words := word.FindAllString(text, -1)
	for i, w := range words {
		words[i] = strings.NewReplacer("'", "", `"`, "").Replace(w)
	}
	for len(words) > 0 && slices.Contains([]string{"$", "sudo"}, words[0]) {
		words = words[1:]
	}
	if len(words) > 1 && words[0] == "kubectl" && words[1] == "liqo" {
		words = words[1:]
	}
	if len(words) < 2 || words[0] != "liqod" && words[0] != "liqo" {
		return nil
	}
	// Output, and sentences, begin with liqod too.
	if first := words[1]; first == "is" || first == "in" || first[0] >= '0' && first[0] <= '9' {
		return nil
	}
	return [][]string{words[1:]}
}

// accepts says whether liqod would take these arguments; whole: whether none is missing.
func accepts(t *testing.T, args []string, whole bool) error {
	t.Helper()
	root := rootCommand(t)
	root.InitDefaultCompletionCmd()
	args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == "…" || arg == "[flags]" })
	found, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	found.InitDefaultHelpFlag()
	if err := found.ParseFlags(rest); err != nil && !errors.Is(err, pflag.ErrHelp) {
		var lacksValue *pflag.ValueRequiredError
		if !whole && errors.As(err, &lacksValue) {
			return nil
		}
		return err
	}
	if help, err := found.Flags().GetBool("help"); err == nil && help || !whole {
		return nil
	}
	return complete(found)
}

// complete says whether a command has the arguments that it needs.
func complete(c *cobra.Command) error {
	if c.HasSubCommands() && c.HasParent() && c.Name() != "completion" {
		return cobra.MinimumNArgs(1)(c, nil) // a group alone does nothing
	}
	return c.ValidateArgs(c.Flags().Args())
}

// TestCommandsOfLiqoctl: what docs/liqo.md says of a command of liqoctl, liqod says when it is typed.
func TestCommandsOfLiqoctl(t *testing.T) {
	page := must(os.ReadFile("../docs/liqo.md"))
	for _, known := range instead {
		rows := regexp.MustCompile("(?m)^\\|.*`liqoctl "+known.theirs+"`.*$").FindAllString(string(page), -1)
		require.NotEmptyf(t, rows, "docs/liqo.md lacks liqoctl %s", known.theirs)
		words, _, _ := strings.Cut(known.ours, ",")
		words, _, _ = strings.Cut(words, " (")
		require.Contains(t, strings.ReplaceAll(rows[len(rows)-1], "`", ""), words)
	}
	for _, typed := range regexp.MustCompile("`liqoctl ([a-z ]+)").FindAllStringSubmatch(string(page), -1) {
		line := strings.Fields(typed[1])
		if ofLiqoctl(line) == "" {
			require.NoError(t, accepts(t, line, false), "liqoctl %s has no answer", typed[1])
		}
	}
}

// TestReflectedKinds: the kinds that the vkubelets of a provider share are these; what
// docs/reflection.md and docs/compatibility.md do not list stays at home.
func TestReflectedKinds(t *testing.T) {
	have := engine.LoopNames(choices(config.Reflection{}, nil))
	var want []string
	for _, kind := range []string{"service", "endpointslice", "ingress", "configmap", "secret"} {
		want = append(want, engine.LoopName(kind))
	}
	require.ElementsMatch(t, append(want, engine.SweepLoop), have)
}
