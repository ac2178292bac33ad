package machine

import (
	"cmp"
	"context"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// mountVolume puts the volume of --volume into the request, by its id: the API
// knows no other name for it.
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

// freeVolume finds the volume that a machine is to mount: of several of one
// name the first that no machine has.
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
	err = bourse.Errorf(bourse.CodeNotFound, "app %s has no free volume %s (%d in use)", app, bourse.Quoted(word), taken)
	return "", cli.Hint(err, "bourse volume create "+word+" -a "+app+" --region "+cmp.Or(string(region), "REGION"), "bourse volume list -a "+app)
}

// parseVolume reads "VOLUME:/PATH".
func parseVolume(s string) (volume, path string, err error) {
	volume, path, ok := strings.Cut(s, ":")
	if !ok || volume == "" || !strings.HasPrefix(path, "/") {
		return "", "", bourse.Errorf(bourse.CodeInvalid, "%s: use VOLUME:/PATH", bourse.Quoted(s))
	}
	return volume, path, nil
}
