package report

import (
	"fmt"
	"regexp"
	"strings"
)

// pseudoVersion is how Go names a build of a commit without a tag, and released matches the version of
// a release. Other versions, such as tags of one's own, cannot be compared.
var (
	pseudoVersion = regexp.MustCompile(`^(.*-)?(?:0\.)?\d{14}-([0-9a-f]{12})(\+dirty)?$`)
	released      = regexp.MustCompile(`^v?(\d+\.\d+\.\d+(?:-(?:alpha|beta|rc)[.0-9]*)?)$`)
)

// PlainVersion returns the one form in which people see a version, of a binary, a chart or a peer: 0.1.0,
// or the commit of a build between releases.
func PlainVersion(version string) string {
	version = strings.TrimPrefix(version, "v")
	if m := pseudoVersion.FindStringSubmatch(version); m != nil {
		return "commit-" + m[2] + strings.Replace(m[3], "+", "-", 1)
	}
	return strings.Trim(version, "()")
}

// releaseOf returns the version of a release, and "" for any other one.
func releaseOf(version string) string {
	if m := released.FindStringSubmatch(version); m != nil {
		return m[1]
	}
	return ""
}

// tagOf returns the tag of the name of an image; "" for a name without one.
func tagOf(image string) string {
	name, _, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], "@")
	_, tag, _ := strings.Cut(name, ":")
	return tag
}

// versions finds parts of the installation that are of another version than the controller, and a
// command that is of another version than the chart.
func (c *checker) versions() {
	roles := c.allRoles()
	if len(roles) == 0 || roles[0].Name != Controller {
		return
	}
	runs, chart := roles[0].Image, releaseOf(roles[0].Version)
	var odd, fixes []string
	for _, r := range roles {
		if r.Image == runs {
			continue
		}
		name := "role " + r.Name
		if r.Name == roleVKubelet {
			name = r.Object
		}
		odd = append(odd, fmt.Sprintf("%s runs %s", name, r.Image))
	}
	differs := func(version string) bool { return chart != "" && version != "" && version != chart }
	if differs(releaseOf(tagOf(runs))) {
		odd = append(odd, "the chart has version "+chart)
	}
	if len(odd) > 0 {
		fixes = append(fixes, "finish the upgrade; virtual nodes with an image of their own have it in spec.virtualKubelet.image")
	}
	if own := releaseOf(c.Command); differs(own) {
		odd = append(odd, fmt.Sprintf("this command has version %s, and the chart %s", own, chart))
		fixes = append(fixes, "use the command of version "+chart+", or upgrade the cluster")
	}
	if len(odd) > 0 {
		c.Add(idVersions, Warning, subjectVersions, fmt.Sprintf("the controller runs %s, but %s", runs, strings.Join(odd, ", ")), strings.Join(fixes, "\n"))
		return
	}
	c.Add(idVersions, OK, subjectVersions, "every part runs "+runs, "")
}

const subjectVersions = "versions"

// Versions returns what is installed in a cluster, and the findings about its versions and about
// the objects that could not be read.
func Versions(s *Snapshot) (Installation, []Finding) {
	c := &checker{Snapshot: s, Examination: Examination{Section: sectionInstallation}}
	c.reading()
	c.versions()
	out := s.installation()
	if len(out.Roles) == 0 && len(s.Unread) == 0 {
		c.Add(idVersions, Warning, subjectVersions, "liqod is not installed in this cluster", "if it is, name its namespace with --namespace")
	}
	return out, c.Findings
}
