package cli

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/loopback"
	"github.com/bourse-dev/bourse/machinesapi"
)

// defaultApp holds the machines of people who name no app. Brokers know it
// without its being made.
const defaultApp = "default"

// client gives the API's client.
func (s *shell) client() *machinesapi.Client {
	base := s.api
	if !strings.Contains(base, "://") {
		scheme := "http://"
		if s.ca != "" {
			scheme = "https://"
		}
		base = scheme + base
	}
	token := orElse(s.token, s.Getenv("BOURSE_API_TOKEN"))
	if token == "" {
		token = loopback.Find(s.Getenv, base)
	}
	return &machinesapi.Client{BaseURL: base, Token: token, HTTP: &http.Client{Transport: s.transport()}}
}

func (s *shell) bindApp(c *cobra.Command, app *string) {
	c.Flags().StringVarP(app, "app", "a", orElse(s.Getenv("BOURSE_APP"), defaultApp), "`app`; also BOURSE_APP")
}

// listMachines gives an app's machines.
func (s *shell) listMachines(ctx context.Context, app string) ([]machinesapi.Machine, error) {
	list, silent, err := s.client().Machines(ctx, bourse.AppName(app), machinesapi.ListMachines{})
	s.warnAbout(silent, "machines")
	return list, err
}

// warnAbout says which workers' machines, or what else, a list lacks.
func (s *shell) warnAbout(silent []bourse.WorkerID, what string) {
	if len(silent) > 0 {
		names := make([]string, len(silent))
		for i, w := range silent {
			names[i] = clean(string(w))
		}
		s.say("warning: no answer from " + strings.Join(names, ", ") + ": their " + what + " are missing here")
	}
}

// resolve finds the machine that a person means: by its id, its name, or a
// beginning of its id that no other machine of the app has. An id is taken as
// it is, without asking anyone.
func (s *shell) resolve(ctx context.Context, app, word string) (bourse.MachineID, error) {
	if id := bourse.MachineID(word); id.Validate() == nil {
		return id, nil
	}
	list, err := s.listMachines(ctx, app)
	if err != nil {
		return "", err
	}
	if i := slices.IndexFunc(list, func(m machinesapi.Machine) bool { return m.Name == word }); i >= 0 {
		return list[i].ID, nil
	}
	var found []string
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
		return "", hint(err, "bourse machine list -a "+app)
	}
	err = bourse.Errorf(bourse.CodeInvalid, "%s is the beginning of several machine ids", bourse.Quoted(word))
	return "", hint(err, "one of "+strings.Join(found, ", "))
}

// about adds to an error from the API which machine it is about, and where to
// look when there is none.
func about(err error, app string, id bourse.MachineID) error {
	if _, told := errors.AsType[*hinted](err); told {
		return err
	}
	switch bourse.CodeOf(err) {
	case bourse.CodeNotFound:
		return hint(ofMachine(id, err), "bourse machine list -a "+app)
	case bourse.CodeConflict, bourse.CodeFailedPrecondition:
		return hint(ofMachine(id, err), "bourse machine status -a "+app+" "+string(id))
	case "":
		return nil
	default:
		return err
	}
}

// ofMachine says which machine an error is about, unless it does already.
func ofMachine(id bourse.MachineID, err error) error {
	if strings.Contains(bourse.MessageOf(err), string(id)) {
		return err
	}
	return &bourse.Error{Code: bourse.CodeOf(err), Message: "machine " + string(id) + ": " + bourse.MessageOf(err), Err: err}
}

// each does something to every machine that the words name, one after the
// other, and goes on past failures.
func (s *shell) each(ctx context.Context, app string, words []string, do func(bourse.MachineID) error) error {
	var problems []error
	for _, word := range words {
		id, err := s.resolve(ctx, app, word)
		if err == nil {
			err = about(do(id), app, id)
		}
		if err != nil {
			problems = append(problems, err)
		}
	}
	if len(problems) == 1 {
		return problems[0]
	}
	return errors.Join(problems...)
}

// longestWait is the most that one wait request may ask for.
const longestWait = time.Minute

// wait blocks until the machine is in one of the states, asking again until
// patience runs out.
func (s *shell) wait(ctx context.Context, app string, id bourse.MachineID, states []string, patience time.Duration) (machinesapi.WaitReply, error) {
	defer spin(s.Err, "waiting for machine "+string(id)+" to be "+strings.Join(states, " or "))()
	end := s.Now().Add(patience)
	for {
		left := min(end.Sub(s.Now()), longestWait)
		if left < time.Millisecond {
			err := bourse.Errorf(bourse.CodeTimeout, "machine %s is not %s after %s", id, strings.Join(states, " or "), patience)
			return machinesapi.WaitReply{}, hint(err, "bourse machine status -a "+app+" "+string(id))
		}
		want := machinesapi.WaitMachine{States: states, Timeout: bourse.Duration(left)}
		reply, err := s.client().Wait(ctx, bourse.AppName(app), id, want)
		if bourse.CodeOf(err) != bourse.CodeTimeout || ctx.Err() != nil {
			return reply, about(err, app, id)
		}
	}
}
