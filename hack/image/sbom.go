package image

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"
)

// The parts of SPDX 2.3 that SBOM writes (https://spdx.github.io/spdx-spec/v2.3).
type spdxDocument struct {
	Version       string             `json:"spdxVersion"`
	License       string             `json:"dataLicense"`
	ID            string             `json:"SPDXID"`
	Name          string             `json:"name"`
	Namespace     string             `json:"documentNamespace"`
	Creation      spdxCreation       `json:"creationInfo"`
	Packages      []spdxPackage      `json:"packages"`
	Relationships []spdxRelationship `json:"relationships"`
}

type spdxCreation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID            string          `json:"SPDXID"`
	Name          string          `json:"name"`
	Version       string          `json:"versionInfo,omitempty"`
	Purpose       string          `json:"primaryPackagePurpose,omitempty"`
	Download      string          `json:"downloadLocation"`
	FilesAnalyzed bool            `json:"filesAnalyzed"`
	Checksums     []spdxChecksum  `json:"checksums,omitempty"`
	Concluded     string          `json:"licenseConcluded"`
	Declared      string          `json:"licenseDeclared"`
	Copyright     string          `json:"copyrightText"`
	References    []spdxReference `json:"externalRefs,omitempty"`
}

type spdxChecksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type spdxReference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

const (
	spdxUnknown = "NOASSERTION"
	spdxRoot    = "SPDXRef-DOCUMENT"
	spdxImage   = "SPDXRef-Image"
	spdxProgram = "SPDXRef-Program"
)

// SBOM writes, as SPDX 2.3 in JSON, what an image with one Go program has: the program, the
// modules that it is made of, and the standard library. The image is the one of that name,
// and the digest that Write returned; the modules are those in the build information of
// binary. The same input gives the same bytes.
func SBOM(w io.Writer, name, digest, binary string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("reading the build information of %s: %w", binary, err)
	}
	sum, err := sumOf(binary)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(document(name, digest, sum, info)); err != nil {
		return fmt.Errorf("writing the SBOM: %w", err)
	}
	return nil
}

func document(name, digest, sum string, info *debug.BuildInfo) spdxDocument {
	repository, tag := Split(name)
	_, hash, _ := strings.Cut(digest, ":")
	image := packageOf(spdxImage, repository, tag, "CONTAINER")
	image.Checksums = []spdxChecksum{{"SHA256", hash}}
	program := packageOf(spdxProgram, info.Main.Path, info.Main.Version, "APPLICATION")
	program.Declared = "Apache-2.0"
	program.Checksums = []spdxChecksum{{"SHA256", sum}}
	standard := packageOf("SPDXRef-Module-0", "stdlib", strings.TrimPrefix(info.GoVersion, "go"), "LIBRARY")
	standard.References = locate("stdlib", standard.Version)
	doc := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: spdxRoot, Name: name,
		Namespace: "https://liqod.io/spdx/" + hash,
		Creation:  spdxCreation{Created: committed(info), Creators: []string{"Tool: liqod-hack-image"}},
		Packages:  []spdxPackage{image, program, standard},
		Relationships: []spdxRelationship{
			{spdxRoot, "DESCRIBES", spdxImage}, {spdxImage, "CONTAINS", spdxProgram}, {spdxProgram, "DEPENDS_ON", standard.ID},
		},
	}
	for i, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		p := packageOf(fmt.Sprintf("SPDXRef-Module-%d", i+1), module.Path, module.Version, "LIBRARY")
		p.References = locate(module.Path, module.Version)
		doc.Packages = append(doc.Packages, p)
		doc.Relationships = append(doc.Relationships, spdxRelationship{spdxProgram, "DEPENDS_ON", p.ID})
	}
	return doc
}

func packageOf(id, name, version, purpose string) spdxPackage {
	return spdxPackage{ID: id, Name: name, Version: version, Purpose: purpose,
		Download: spdxUnknown, Concluded: spdxUnknown, Declared: spdxUnknown, Copyright: spdxUnknown}
}

// locate names a module as scanners look it up: by its package URL.
func locate(module, version string) []spdxReference {
	// Of the characters in paths and versions of modules only the plus is to be encoded.
	url := strings.ReplaceAll("pkg:golang/"+module+"@"+version, "+", "%2B")
	return []spdxReference{{"PACKAGE-MANAGER", "purl", url}}
}

// committed is the time of the commit that the program was built from, else 1970.
func committed(info *debug.BuildInfo) string {
	for _, setting := range info.Settings {
		if at, err := time.Parse(time.RFC3339, setting.Value); setting.Key == "vcs.time" && err == nil {
			return at.UTC().Format(time.RFC3339)
		}
	}
	return time.Unix(0, 0).UTC().Format(time.RFC3339)
}

// Split returns the repository and the tag of an image's name: latest if it has none.
func Split(name string) (repository, tag string) {
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		repository, tag = name[:i], name[i+1:]
		return repository, cmp.Or(tag, "latest")
	}
	return name, "latest"
}

func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("opening %s: %w", path, err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
