package machine

import (
	"cmp"
	"context"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// mountVolume sets the request's mount from --volume. It replaces a volume's name with the
// volume's id, because the API accepts only ids.
func mountVolume(ctx context.Context, s *cli.Shell, f *runFlags, req *machinesapi.CreateMachine) error {
	if f.Volume == "" {
		return nil
	}
	word, path, err := parseVolume(f.Volume)
	if err != nil {
		return cli.FlagError("--volume", err)
	}
	region := bourse.Region("")
	if bourse.Region(f.Region).Validate() == nil {
		region = bourse.Region(f.Region)
	}
	id, err := freeVolume(ctx, s, f.App, word, region)
	if err != nil {
		return err
	}
	req.Config.Mounts = []bourse.Mount{{Volume: id, Path: path}}
	return nil
}

// freeVolume returns the id of a volume. If word is a name, it returns the first usable
// volume with that name that no machine mounts. If region is not empty, the volume must be
// in that region.
func freeVolume(ctx context.Context, s *cli.Shell, app, word string, region bourse.Region) (bourse.VolumeID, error) {
	if id := bourse.VolumeID(word); id.Validate() == nil {
		return id, nil
	}
	list, silent, err := s.Client().Volumes(bourse.AppName(app)).List(ctx)
	s.WarnMissing(silent, "volumes")
	if err != nil {
		return "", err
	}
	taken := 0
	for _, v := range list {
		switch {
		case v.Name != word || !v.State.Usable() || region != "" && v.Region != region:
		case v.Machine != nil:
			taken++
		default:
			return v.ID, nil
		}
	}
	err = bourse.Errorf(bourse.CodeNotFound, "app %s has no unused volume %s (%d in use)", app, bourse.Quoted(word), taken)
	return "", cli.Hint(err, "bourse volume create "+word+" -a "+app+" --region "+cmp.Or(string(region), "REGION"), "bourse volume list -a "+app)
}

// parseVolume parses "VOLUME:/PATH".
func parseVolume(s string) (volume, path string, err error) {
	volume, path, ok := strings.Cut(s, ":")
	if !ok || volume == "" || !strings.HasPrefix(path, "/") {
		return "", "", bourse.Errorf(bourse.CodeInvalid, "%s: use VOLUME:/PATH", bourse.Quoted(s))
	}
	return volume, path, nil
}
