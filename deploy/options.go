package deploy

import (
	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/release"
)

// Options are what a plan needs to know beside what is wanted and what is there.
type Options struct {
	Release release.ID // that machines which are made or changed will be of; "": they keep theirs
	Version int64      // its number; 0: none
	// Digests are what images were resolved to, "sha256:…" by name as configs have it. A
	// machine whose image of the same name is another one is updated; of an image
	// that is not listed names are compared.
	Digests map[string]string
	// ReplaceLost says that machines whose worker does not answer are replaced on others;
	// the lost ones are destroyed by a later plan, once their worker answers. Otherwise
	// they are left alone, with a warning.
	ReplaceLost bool
}

// Pace is how fast plans without an [App] go: as members of App with the same names.
type Pace struct {
	MaxUnavailable float64
	Wait           bourse.Duration
	Smoke          bool
}
