package deploy_test

import (
	"strings"
	"testing"

	"github.com/bourse-dev/bourse/deploy"
)

// TestCheckMarks: what another plan has noted on a machine is a change, also without a new version of it.
func TestCheckMarks(t *testing.T) {
	t.Parallel()
	for _, key := range []string{deploy.KeyPlatform, deploy.KeyRelease, deploy.KeyVersion, deploy.KeyCanary, deploy.KeyPaused, deploy.KeyReplaces, deploy.KeyGroup} {
		s := &stage{world: newWorld(t), opts: deploy.Options{Release: second, Version: 2}}
		s.there(in(web("shop:1"), "fra", 2))
		p := s.make(app(deploy.Rolling, in(web("shop:2"), "fra", 2)))
		s.nth(1).Config.Metadata[key] = "another"
		if said := p.Check(s.state()); len(said) != 1 || !strings.Contains(said[0], "m1") || !strings.Contains(said[0], "another") {
			t.Errorf("%s: it says %q", key, said)
		}
	}
}
