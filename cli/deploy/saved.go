package deploy

import (
	"context"
	"encoding/json"
	"os"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy"
)

// saved is a plan in a file, with what it needs to be made again.
type saved struct {
	Plan        deploy.Plan     `json:"plan"`
	Want        deploy.App      `json:"want"`
	Definition  json.RawMessage `json:"definition,omitempty"`
	Image       string          `json:"image,omitempty"`
	Description string          `json:"description,omitempty"`
}

// save writes the file, which only its owner may read: it has the app's environment.
func (s *saved) save(file string) error {
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(raw, '\n'), 0o600)
}

// maxSaved bounds a file with a plan, in bytes.
const maxSaved = 256 << 20

// readSaved reads what save has written.
func readSaved(file string) (*saved, error) {
	raw, err := readFile(file)
	if err != nil {
		return nil, err
	}
	return parseSaved(file, raw)
}

func parseSaved(file string, raw []byte) (*saved, error) {
	var s saved
	if err := json.Unmarshal(raw, &s); err != nil || len(raw) > maxSaved {
		return nil, bourse.Errorf(bourse.CodeInvalid, "%s has no plan that bourse deploy --plan --out has saved: %w", file, err)
	}
	if err := s.Plan.App.Validate(); err != nil || s.Plan.App != s.Want.Name || s.Plan.Basis == "" {
		return nil, bourse.Errorf(bourse.CodeInvalid, "%s has no plan that bourse deploy --plan --out has saved", file)
	}
	return &s, nil
}

// applySaved carries out a saved plan, if all is as it was when it was made.
func (d *deployer) applySaved(ctx context.Context) error {
	s, err := readSaved(d.apply)
	if err != nil {
		return err
	}
	if named := d.target.app; named != "" && named != string(s.Plan.App) {
		return bourse.Errorf(bourse.CodeInvalid, "the plan is of app %s, not of %s", s.Plan.App, named)
	}
	w := &want{App: s.Want, Definition: s.Definition, Image: s.Image, Description: s.Description}
	have, err := look(ctx, d.shell, w.App.Name)
	if err != nil {
		return err
	}
	d.saved = &s.Plan
	return d.make(ctx, w, have, "")
}

// fit returns an error if a saved plan is being applied and p, the plan made now, differs from it.
func (d *deployer) fit(p *deploy.Plan, have deploy.State) error {
	if d.saved == nil || p.Basis == d.saved.Basis {
		return nil
	}
	changes := d.saved.Check(have)
	if len(changes) == 0 {
		changes = []string{"an image is another one under the same name, or the plan is of another version of bourse"}
	}
	return unfit(d.apply, changes)
}

func unfit(file string, changes []string) error {
	err := bourse.Errorf(bourse.CodeConflict, "the plan in %s does not fit any more:\n%s", file, strings.Join(changes, "\n"))
	return cli.Hint(err, "a new plan: bourse deploy --plan --out "+file)
}
