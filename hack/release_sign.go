package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/secure-systems-lab/go-securesystemslib/signerverifier"
)

const (
	// signature is the file of a signed release with the signature of its checksums.
	signature = checksums + ".sig"
	// provenance is the file of a signed release that says what its files were made of: an
	// in-toto statement with a predicate of SLSA, in an envelope of DSSE.
	provenance = "provenance.intoto.json"
	// builder names this command, and the form of what it says of a build.
	builder = "https://github.com/liqod/liqod/hack/release/v1"
)

// loadReleaseKey reads the private key of the releaser: Ed25519, in PEM (PKCS 8).
func loadReleaseKey(path string) (*signerverifier.ED25519SignerVerifier, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("reading the key of the release: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("reading the key of the release: others may read or change %s, which has mode %04o: 0600 is accepted (chmod 600 %[1]s)", path, mode)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the key of the release: %w", err)
	}
	key, err := signerverifier.LoadKey(text)
	if err != nil || key.KeyType != signerverifier.ED25519KeyType || key.KeyVal.Private == "" {
		return nil, fmt.Errorf("reading the key of the release: %s is not accepted: a private key that openssl genpkey -algorithm ed25519 has made is (%w)", path, errors.Join(err))
	}
	return signerverifier.NewED25519SignerVerifierFromSSLibKey(key)
}

// subject is a file of a release in its provenance.
type subject struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest"`
}

// signRelease writes the provenance of the files that SHA256SUMS lists, and the signature of that
// list. Equal releases and keys give equal bytes.
func signRelease(ctx context.Context, o releaseOptions, commit, dir string) error {
	key, err := loadReleaseKey(o.key)
	if err != nil {
		return err
	}
	sums, err := os.ReadFile(filepath.Join(dir, checksums))
	if err != nil {
		return fmt.Errorf("reading the checksums: %w", err)
	}
	signed, err := key.Sign(ctx, sums)
	if err != nil {
		return fmt.Errorf("signing the checksums: %w", err)
	}
	statement, err := json.Marshal(map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "subject": subjects(string(sums)), "predicateType": "https://slsa.dev/provenance/v1",
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType": builder, "externalParameters": map[string]string{"version": o.version, "repository": o.repository},
				"resolvedDependencies": []subject{{URI: "git+https://github.com/liqod/liqod", Digest: map[string]string{"gitCommit": commit}}},
			},
			"runDetails": map[string]any{"builder": map[string]string{"id": builder}},
		},
	})
	if err != nil {
		return fmt.Errorf("encoding the provenance: %w", err)
	}
	signer, err := dsse.NewEnvelopeSigner(key)
	if err != nil {
		return fmt.Errorf("preparing the signature of the provenance: %w", err)
	}
	envelope, err := signer.SignPayload(ctx, "application/vnd.in-toto+json", statement)
	if err != nil {
		return fmt.Errorf("signing the provenance: %w", err)
	}
	text, err := json.Marshal(envelope)
	if err != nil {
		return fmt.Errorf("encoding the provenance: %w", err)
	}
	for name, data := range map[string][]byte{signature: []byte(base64.StdEncoding.EncodeToString(signed) + "\n"), provenance: append(text, '\n')} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

// subjects are the files of a list of checksums.
func subjects(sums string) (out []subject) {
	for lines := bufio.NewScanner(strings.NewReader(sums)); lines.Scan(); {
		sum, name, _ := strings.Cut(lines.Text(), "  ")
		out = append(out, subject{Name: name, Digest: map[string]string{"sha256": sum}})
	}
	return out
}

// checkRelease refuses a release with known vulnerabilities, one that nobody can look at for them, and a
// key of no use.
func checkRelease(ctx context.Context, o releaseOptions, log io.Writer) error {
	if o.key == "" {
		fmt.Fprintln(log, "\nWARNING: THE RELEASE IS NOT SIGNED.\nWith -key, a private key of openssl genpkey -algorithm ed25519, it is.")
	} else if _, err := loadReleaseKey(o.key); err != nil {
		return err
	}
	vulns := vulnOptions{tool: o.tool, db: o.db, packages: ".", required: true}
	if code := checkVulns(ctx, vulns, log, log); code != 0 {
		return fmt.Errorf("looking for vulnerabilities in the program ended with %d: a release needs the answer that there are none", code)
	}
	return nil
}
