package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// ErrNoCommit says that a repository does not have a commit, as a shallow clone may not.
var ErrNoCommit = errors.New("the repository does not have this commit")

// HasCommit returns ErrNoCommit if the repository in root does not have a commit.
func HasCommit(ctx context.Context, root, commit string) error {
	out, err := exec.CommandContext(ctx, "git", "-C", root, "cat-file", "-e", commit+"^{commit}").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s (git: %w: %s)", ErrNoCommit, commit, err, out)
	}
	return nil
}

// Sources returns a folder with the files of a commit of the repository in root: in the
// user's cache directory, written once for each commit.
func Sources(ctx context.Context, root, commit string) (string, error) {
	if err := HasCommit(ctx, root, commit); err != nil {
		return "", err
	}
	dir, unlock, err := lockCache(ctx, "sources-"+commit, func() {})
	if err != nil {
		return "", fmt.Errorf("reading the sources of %s: %w", commit, err)
	}
	defer unlock()
	sources, partial := filepath.Join(dir, "files"), filepath.Join(dir, "part")
	if _, err := os.Stat(sources); err == nil {
		return sources, nil
	}
	if err := os.RemoveAll(partial); err != nil {
		return "", fmt.Errorf("removing what an earlier run left of %s: %w", commit, err)
	}
	index := "GIT_INDEX_FILE=" + filepath.Join(dir, "index")
	for _, args := range [][]string{{"read-tree", commit}, {"checkout-index", "--all", "--prefix=" + partial + "/"}} {
		cmd := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...)
		cmd.Env = append(os.Environ(), index)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("writing the files of %s: %s: %w: %s", commit, cmd, err, out)
		}
	}
	if err := os.Rename(partial, sources); err != nil {
		return "", fmt.Errorf("keeping the files of %s: %w", commit, err)
	}
	return sources, nil
}
