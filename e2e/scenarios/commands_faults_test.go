package scenarios

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

// faultCase is a row of the tables of faults: status and check name its cause and a fix, and the fix works
// as it is pasted.
type faultCase struct {
	name string
	// at is the cluster whose people look. Default: rome.
	at *site.Site
	// as are further flags of status and check.
	as []string
	// cause are texts that one line of the output has.
	cause []string
	// quiet says that check names the cause, and status does not.
	quiet bool
	// make makes the fault.
	make func(*testing.T)
	// only picks the commands of the fix that have this text, where a fix has several ways.
	only string
	// fill are the words in capitals of the fix, each with what a person decides.
	fill map[string]string
	// editor is a script of sed that edits what a command opens in an editor.
	editor string
	// runbook is the section of docs/runbooks.md about this fault, and command one of its commands, which the
	// fix has too. Words in capitals stand for what is known of the fault.
	runbook, command string
	// then does what no command can do here, such as the work of a kubelet.
	then func(*testing.T)
}

// mends makes faults, waits until the commands name the causes of all, runs the fixes, and waits until no
// cause is left.
func (w *world) mends(t *testing.T, faults ...faultCase) {
	t.Helper()
	for i := range faults {
		if faults[i].at == nil {
			faults[i].at = w.rome
		}
		if faults[i].make != nil {
			faults[i].make(t)
		}
	}
	fixes := map[string][]string{}
	within(t, longest, "check names the causes", func(ctx context.Context) error {
		return w.look(ctx, "check", faults, func(f faultCase, fix []string, found bool) error {
			if !found {
				return fmt.Errorf("%s: no line has %q", f.name, f.cause)
			}
			fixes[f.name] = fix
			return nil
		})
	})
	within(t, longest, "status names the same causes and fixes", func(ctx context.Context) error {
		return w.look(ctx, "status", faults, func(f faultCase, fix []string, found bool) error {
			return lab.Wrong(nil, !f.quiet && (!found || !slices.Equal(fix, fixes[f.name])), "%s: %q has the fix %q, not %q", f.name, f.cause, fix, fixes[f.name])
		})
	})
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) { w.paste(t, f, fixes[f.name]) })
	}
	for _, command := range []string{"status", "check"} {
		within(t, longest, command+" names no cause any more", func(ctx context.Context) error {
			return w.look(ctx, command, faults, func(f faultCase, _ []string, found bool) error {
				return lab.Wrong(nil, found, "%s: there is still a line with %q", f.name, f.cause)
			})
		})
	}
}

// look runs a command once for each cluster and set of flags, and judges the findings of the faults.
func (w *world) look(ctx context.Context, command string, faults []faultCase, judge func(faultCase, []string, bool) error) error {
	printed := map[string]string{}
	var wrong []error
	for _, f := range faults {
		key := f.at.Name + strings.Join(f.as, " ")
		if printed[key] == "" {
			out, code, err := w.command(ctx, f.at, append([]string{command}, f.as...)...)
			if err != nil {
				return err
			}
			if !strings.Contains(out, "Cluster ") && !strings.Contains(out, "Installation") {
				return fmt.Errorf("%s ended with code %d: %s", command, code, out)
			}
			printed[key] = out
		}
		fix, found := findingOf(printed[key], f.cause)
		if err := judge(f, fix, found); err != nil {
			wrong = append(wrong, fmt.Errorf("%w:\n%s", err, printed[key]))
		}
	}
	return errors.Join(wrong...)
}

// findingOf returns the lines of the fix of the first problem, warning or unknown state in what a command
// printed whose line has all of the texts.
func findingOf(out string, texts []string) (fix []string, found bool) {
	const first, next = "      Fix: ", "           "
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\n")
		switch {
		case found && strings.HasPrefix(line, first):
			fix = append(fix, strings.TrimPrefix(line, first))
		case found && fix != nil && strings.HasPrefix(line, next):
			fix = append(fix, strings.TrimPrefix(line, next))
		case found:
			return fix, true
		default:
			mark, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			found = slices.Contains([]string{"✘", "‼", "?"}, mark) &&
				!slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) })
		}
	}
	return fix, found
}

// paste runs the commands of a fix in a shell, each in the cluster that the fix says.
func (w *world) paste(t *testing.T, f faultCase, fix []string) {
	t.Helper()
	t.Logf("fix: %s", strings.Join(fix, "\n"))
	w.inRunbook(t, f, fix)
	at, ran, token := f.at, 0, ""
	for _, line := range fix {
		switch {
		case line == "In this cluster:", strings.HasPrefix(line, "Then here"):
			at = f.at
		case strings.HasPrefix(line, "In "):
			at = w.other(f.at)
		}
		if !isCommand(line) || !strings.Contains(line, f.only) {
			continue
		}
		for word, value := range f.fill {
			line = strings.ReplaceAll(line, word, value)
		}
		line = strings.ReplaceAll(line, "TOKEN", token)
		out, err := w.shell(t, at, line, f.editor)
		require.NoError(t, err, "%s\n%s", line, out)
		for said := range strings.Lines(out) {
			if said = strings.TrimSpace(said); strings.HasPrefix(said, "liqod1.") {
				token = said
			}
		}
		ran++
	}
	require.NotZero(t, ran, "the fix has no command with %q: %q", f.only, fix)
	if f.then != nil {
		f.then(t)
	}
}

// inRunbook checks that the page about a fault has the command that mends it.
func (w *world) inRunbook(t *testing.T, f faultCase, fix []string) {
	t.Helper()
	if f.runbook == "" {
		return
	}
	page := must(os.ReadFile("../../docs/runbooks.md"))(t)
	_, section, found := strings.Cut(string(page), "\n## "+f.runbook+"\n")
	require.True(t, found, f.runbook)
	section, _, _ = strings.Cut(section, "\n## ")
	require.Contains(t, section, f.command)
	words := regexp.MustCompile(`\b[A-Z]{2,}\b`).ReplaceAllString(regexp.QuoteMeta(f.command), `\S+`)
	words = strings.ReplaceAll(words, `\$\{\S+:-vi\}`, `\$\{EDITOR:-vi\}`)
	same := regexp.MustCompile(`^` + words + `$`)
	require.True(t, slices.ContainsFunc(fix, same.MatchString), "%s is not in %q", f.command, fix)
}

// isCommand tells a command from what is said about it.
func isCommand(line string) bool {
	return slices.ContainsFunc([]string{"kubectl ", "liqod ", "curl "}, func(program string) bool { return strings.HasPrefix(line, program) })
}

func (w *world) other(s *site.Site) *site.Site {
	if s == w.rome {
		return w.milan
	}
	return w.rome
}

// shell runs a line as a person does who has kubectl, liqod and the kubeconfig of a cluster's administrator.
func (w *world) shell(t *testing.T, at *site.Site, line, editor string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	for name, path := range map[string]string{"kubectl": w.sites.Lab.Kubelab(), "liqod": w.sites.Command(t.Context()).Path} {
		require.NoError(t, os.Symlink(path, filepath.Join(dir, name)))
	}
	script := filepath.Join(dir, "editor")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\nexec sed -i '"+editor+"' \"$1\"\n"), 0o700))
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", line)
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "PATH=" + dir + ":" + os.Getenv("PATH"), "KUBECONFIG=" + at.Kubeconfig, "EDITOR=" + script}
	out, err := cmd.CombinedOutput()
	return string(out), err
}
