package report

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Versions of releases are compared, and others are not.
func TestVersionsThatDiffer(t *testing.T) {
	for name, tc := range map[string]struct {
		change    func(*Snapshot)
		says, fix string
	}{
		"all the same":             {func(s *Snapshot) { s.Command = "0.1.0" }, "every part runs liqod:1", ""},
		"a command of a commit":    {func(s *Snapshot) { s.Command = "commit-abcdef123456" }, "every part runs liqod:1", ""},
		"a newer command":          {func(s *Snapshot) { s.Command = "0.2.0" }, "this command has version 0.2.0, and the chart 0.1.0", "use the command of version 0.1.0, or upgrade the cluster"},
		"a command before release": {func(s *Snapshot) { s.Command = "0.1.0-rc.1" }, "this command has version 0.1.0-rc.1, and the chart 0.1.0", "use the command of version 0.1.0"},
		"an older role": {func(s *Snapshot) { s.Roles[3].Spec.Template.Spec.Containers[0].Image = "liqod:0" },
			"the controller runs liqod:1, but role gateway runs liqod:0", "finish the upgrade"},
		"an older vkubelet": {func(s *Snapshot) { s.VKubelets[0].Spec.Template.Spec.Containers[0].Image = "liqod:0" }, "liqo-tenant-milan/vk-milan runs liqod:0", "spec.virtualKubelet.image"},
		"images of another release": {func(s *Snapshot) { everywhere(s, "registry.example:5000/liqod:v0.2.0@sha256:00") },
			"the controller runs registry.example:5000/liqod:v0.2.0@sha256:00, but the chart has version 0.1.0", "finish the upgrade"},
		"images of a tag of one's own":  {func(s *Snapshot) { everywhere(s, "registry.example:5000/liqod:tuesday") }, "every part runs registry.example:5000/liqod:tuesday", ""},
		"images by digest alone":        {func(s *Snapshot) { everywhere(s, "registry.example:5000/liqod@sha256:00") }, "every part runs", ""},
		"images between two releases":   {func(s *Snapshot) { everywhere(s, "liqod:v0.1.0-5-gabcdef1") }, "every part runs", ""},
		"the image of the same release": {func(s *Snapshot) { everywhere(s, "liqod:0.1.0") }, "every part runs", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			tc.change(s)
			in, findings := Versions(s)
			require.Len(t, findings, 1)
			require.Contains(t, findings[0].Message, tc.says)
			require.Contains(t, findings[0].Fix, tc.fix)
			require.Equal(t, tc.fix != "", findings[0].Level == Warning)
			require.Contains(t, VersionsText(in, findings), "\nCluster rome\nliqod 0.1.0 in namespace liqod, Kubernetes v1.36.3; controller 2/2; webhook 2/2; ipam 2/2; gateway 2/2; route 3/3\n\n"+
				"LIQOD        OBJECT                       READY   VERSION")
			require.Contains(t, Check(s), findings[0], "check says the same")
		})
	}
}

func everywhere(s *Snapshot, image string) {
	for i := range s.Roles {
		s.Roles[i].Spec.Template.Spec.Containers[0].Image = image
	}
	s.DaemonSets[0].Spec.Template.Spec.Containers[0].Image, s.VKubelets[0].Spec.Template.Spec.Containers[0].Image = image, image
}

func TestVersionsOfNothing(t *testing.T) {
	in, findings := Versions(&Snapshot{Namespace: "liqod", Kubernetes: "v1.36.3"})
	require.Equal(t, `
Cluster (id unknown)
  ‼ versions: liqod is not installed in this cluster
      Fix: if it is, name its namespace with --namespace
      Docs: https://github.com/liqod/liqod/blob/main/docs/checks.md#versions
`, VersionsText(in, findings))
}
