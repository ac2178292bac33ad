package machine

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// listMachines returns an app's machines.
func listMachines(ctx context.Context, s *cli.Shell, app string) ([]machinesapi.Machine, error) {
	end := cli.Spin(s.Err, "asking the workers")
	list, silent, err := s.Client().Machines(ctx, bourse.AppName(app), machinesapi.ListMachines{})
	end()
	s.WarnMissing(silent, "machines")
	return list, err
}

// find returns the machine with the given id, name, or unique id prefix.
func find(ctx context.Context, s *cli.Shell, app, word string) (machinesapi.Machine, error) {
	id, err := resolve(ctx, s, app, word)
	if err != nil {
		return machinesapi.Machine{}, err
	}
	m, err := s.Client().Machine(ctx, bourse.AppName(app), id)
	if err != nil {
		return machinesapi.Machine{}, about(err, app, id)
	}
	return m, nil
}

// resolve returns the id of the machine with the given id, name, or unique id prefix in the
// app. It returns a complete id unchanged, without a request to the API.
func resolve(ctx context.Context, s *cli.Shell, app, word string) (bourse.MachineID, error) {
	if id := bourse.MachineID(word); id.Validate() == nil {
		return id, nil
	}
	list, err := listMachines(ctx, s, app)
	if err != nil {
		return "", err
	}
	var found []string
	named := slices.DeleteFunc(slices.Clone(list), func(m machinesapi.Machine) bool { return m.Name != word })
	if len(named) > 1 { // while a machine is being destroyed, another one may already have its name
		named = slices.DeleteFunc(named, func(m machinesapi.Machine) bool { return m.State == bourse.StateDestroying })
	}
	for _, m := range named {
		found = append(found, string(m.ID))
	}
	switch len(found) {
	case 0:
	case 1:
		return bourse.MachineID(found[0]), nil
	default:
		err := bourse.Errorf(bourse.CodeInvalid, "%d machines are named %s", len(found), bourse.Quoted(word))
		return "", cli.Hint(err, "one of the ids "+strings.Join(found, ", "))
	}
	for _, m := range list {
		if word != "" && strings.HasPrefix(string(m.ID), word) {
			found = append(found, string(m.ID))
		}
	}
	switch len(found) {
	case 1:
		return bourse.MachineID(found[0]), nil
	case 0:
		err := bourse.Errorf(bourse.CodeNotFound, "app %s has no machine %s", app, bourse.Quoted(word))
		names := make([]string, len(list))
		for i := range list {
			names[i] = list[i].Name
		}
		if name := cli.Nearest(word, names); name != "" {
			return "", cli.Hint(err, name)
		}
		return "", cli.Hint(err, "bourse machine list -a "+app)
	}
	err = bourse.Errorf(bourse.CodeInvalid, "several machine ids begin with %s", bourse.Quoted(word))
	return "", cli.Hint(err, "one of "+strings.Join(found, ", "))
}

// about adds the machine's id and a hint to an error from the API.
func about(err error, app string, id bourse.MachineID) error {
	if cli.Hints(err) != nil {
		return err
	}
	switch bourse.CodeOf(err) {
	case bourse.CodeNotFound:
		return cli.Hint(withMachine(id, err), "bourse machine list -a "+app)
	case bourse.CodeConflict, bourse.CodeFailedPrecondition:
		return cli.Hint(withMachine(id, err), "bourse machine status -a "+app+" "+string(id))
	case "":
		return nil
	default:
		return err
	}
}

// withMachine adds the machine's id to an error's message, unless the message contains it
// already.
func withMachine(id bourse.MachineID, err error) error {
	if strings.Contains(bourse.MessageOf(err), string(id)) {
		return err
	}
	return &bourse.Error{Code: bourse.CodeOf(err), Message: "machine " + string(id) + ": " + bourse.MessageOf(err), Err: err}
}

// forEach finds the machine for each word and calls do for it, one machine at a time. It continues after errors.
func forEach(ctx context.Context, s *cli.Shell, app string, words []string, do func(bourse.MachineID) error) error {
	return cli.Each(words, func(word string) error {
		id, err := resolve(ctx, s, app, word)
		if err != nil {
			return err
		}
		return about(do(id), app, id)
	})
}

// maxWait is the longest timeout of a single request that waits for a machine's state.
const maxWait = time.Minute

// wait blocks until the machine is in one of the given states. It fails if this takes longer than timeout.
func wait(ctx context.Context, s *cli.Shell, app string, id bourse.MachineID, states []string, timeout time.Duration) (machinesapi.WaitReply, error) {
	defer cli.Spin(s.Err, "waiting for machine "+string(id)+" to be "+strings.Join(states, " or "))()
	end := s.Now().Add(timeout)
	for {
		left := min(end.Sub(s.Now()), maxWait)
		if left < time.Millisecond {
			err := bourse.Errorf(bourse.CodeTimeout, "machine %s is not %s after %s", id, strings.Join(states, " or "), timeout)
			return machinesapi.WaitReply{}, cli.Hint(err, "bourse machine status -a "+app+" "+string(id))
		}
		want := machinesapi.WaitMachine{States: states, Timeout: bourse.Duration(left)}
		reply, err := s.Client().Wait(ctx, bourse.AppName(app), id, want)
		if bourse.CodeOf(err) != bourse.CodeTimeout || ctx.Err() != nil {
			return reply, about(err, app, id)
		}
	}
}
