package broker_test

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	fly "github.com/superfly/fly-go"
	"github.com/superfly/fly-go/flaps"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// flapsCase is the environment in which a method is called: an app with one started machine and one unattached
// volume.
type flapsCase struct {
	*flaps.Client
	s       *setup
	machine bourse.MachineID
	volume  bourse.VolumeID
}

func (c *flapsCase) m() string { return string(c.machine) }

func (c *flapsCase) leased(ctx context.Context) string {
	ttl := 60
	lease, err := c.AcquireLease(ctx, "shop", c.m(), &ttl)
	if err != nil {
		return ""
	}
	return lease.Data.Nonce
}

// answers returns err. If err is nil but the call's result is not as expected, it returns another
// error.
func answers(err error, as bool) error {
	if err == nil && !as {
		return errors.New("the reply is not as expected")
	}
	return err
}

// refusedBy returns nil if err is a refusal with the given status, and its text contains the given
// words.
func refusedBy(err error, status int, words string) error {
	var e *flaps.FlapsError
	if errors.As(err, &e) && e.ResponseStatusCode == status && strings.Contains(e.Error(), words) {
		return nil
	}
	return errors.Join(errors.New("it was not refused as expected"), err)
}

// flapsMethods contains a check for each method, by the method's name.
var flapsMethods = map[string]func(context.Context, *flapsCase) error{
	// Apps.
	"CreateApp": func(ctx context.Context, c *flapsCase) error {
		app, err := c.CreateApp(ctx, flaps.CreateAppRequest{Name: "other", Org: "personal"})
		return answers(err, err == nil && app.Name == "other")
	},
	"GetApp": func(ctx context.Context, c *flapsCase) error {
		app, err := c.GetApp(ctx, "shop")
		return answers(err, err == nil && app.Deployed() && app.MachineCount == 1 && app.VolumeCount == 1)
	},
	"ListApps": func(ctx context.Context, c *flapsCase) error {
		list, err := c.ListApps(ctx, flaps.ListAppsRequest{OrgSlug: "personal", AppRole: "any"})
		return answers(err, len(list) == 1)
	},
	"DeleteApp": func(ctx context.Context, c *flapsCase) error {
		if _, err := c.CreateApp(ctx, flaps.CreateAppRequest{Name: "bare"}); err != nil {
			return err
		}
		return c.DeleteApp(ctx, "bare")
	},
	"AppNameAvailable": func(ctx context.Context, c *flapsCase) error { // if the name is taken, the client itself panics
		ok, err := c.AppNameAvailable(ctx, "free")
		return answers(err, ok)
	},
	"WaitForApp": func(ctx context.Context, c *flapsCase) error { return c.WaitForApp(ctx, "shop") },

	// Machines.
	"Launch": func(ctx context.Context, c *flapsCase) error {
		in := flyInput()
		in.Name = ""
		m, err := c.Launch(ctx, "shop", in)
		return answers(err, err == nil && m.State == "started" && m.Name != "")
	},
	"Get": func(ctx context.Context, c *flapsCase) error {
		m, err := c.Get(ctx, "shop", c.m())
		return answers(err, err == nil && m.ID == c.m())
	},
	"GetMany": func(ctx context.Context, c *flapsCase) error {
		list, err := c.GetMany(ctx, "shop", []string{c.m(), c.m()})
		return answers(err, len(list) == 2)
	},
	"List": func(ctx context.Context, c *flapsCase) error {
		list, err := c.List(ctx, "shop", "state=started,stopped&region=gru")
		return answers(err, len(list) == 1 && list[0].Config != nil)
	},
	"ListActive": func(ctx context.Context, c *flapsCase) error {
		list, err := c.ListActive(ctx, "shop")
		return answers(err, len(list) == 1)
	},
	"ListFlyAppsMachines": func(ctx context.Context, c *flapsCase) error {
		if err := c.SetMetadata(ctx, "shop", c.m(), "fly_platform_version", "v2"); err != nil {
			return err
		}
		list, _, err := c.ListFlyAppsMachines(ctx, "shop")
		return answers(err, len(list) == 1)
	},
	"Update": func(ctx context.Context, c *flapsCase) error {
		now, err := c.Get(ctx, "shop", c.m())
		if err != nil {
			return err
		}
		in := fly.LaunchMachineInput{ID: c.m(), Name: now.Name, Region: now.Region, Config: now.Config}
		in.Config.Env = map[string]string{"A": "1"}
		updated, err := c.Update(ctx, "shop", in, c.leased(ctx))
		return answers(err, err == nil && updated.InstanceID != now.InstanceID && updated.Config.Env["A"] == "1")
	},
	"Start": func(ctx context.Context, c *flapsCase) error {
		done, err := c.Start(ctx, "shop", c.m(), c.leased(ctx))
		return answers(err, err == nil && done.Status != "error" && done.PreviousState == "started")
	},
	"Stop": func(ctx context.Context, c *flapsCase) error {
		return c.Stop(ctx, "shop", fly.StopMachineInput{ID: c.m()}, c.leased(ctx))
	},
	"Suspend": func(ctx context.Context, c *flapsCase) error {
		if err := c.Suspend(ctx, "shop", c.m(), c.leased(ctx)); err != nil {
			return err
		}
		return c.Wait(ctx, "shop", c.m(), flaps.WithWaitStates("suspended"), flaps.WithWaitTimeout(time.Second))
	},
	"Restart": func(ctx context.Context, c *flapsCase) error {
		return c.Restart(ctx, "shop", fly.RestartMachineInput{ID: c.m(), ForceStop: true, Timeout: time.Second, Signal: "SIGTERM"}, c.leased(ctx))
	},
	"Kill": func(ctx context.Context, c *flapsCase) error { return c.Kill(ctx, "shop", c.m()) },
	"Destroy": func(ctx context.Context, c *flapsCase) error {
		return c.Destroy(ctx, "shop", fly.RemoveMachineInput{ID: c.m(), Kill: true}, c.leased(ctx))
	},
	"Wait": func(ctx context.Context, c *flapsCase) error {
		return c.Wait(ctx, "shop", c.m(), flaps.WithWaitStates("started"), flaps.WithWaitTimeout(time.Second))
	},
	"Exec": func(ctx context.Context, c *flapsCase) error {
		out, err := c.Exec(ctx, "shop", c.m(), &fly.MachineExecRequest{Cmd: "echo hi", Timeout: 5})
		return answers(err, err == nil && out.StdOut == `["echo","hi"]`)
	},
	"GetProcesses": func(ctx context.Context, c *flapsCase) error {
		handle(c.s.workers["w1"], &fabric.MachineProcesses, func(bourse.MachineID) ([]bourse.Process, error) {
			return []bourse.Process{{PID: 1, Command: "web", Listens: []bourse.ListenSocket{{Proto: "tcp", Address: "[::]:80"}}}, {PID: 7, Command: "a"}}, nil
		})
		list, err := c.GetProcesses(ctx, "shop", c.m())
		return answers(err, len(list) == 2 && list[0].Pid == 1 && list[0].Command == "web" && len(list[0].ListenSockets) == 1)
	},
	"Cordon":   func(ctx context.Context, c *flapsCase) error { return c.Cordon(ctx, "shop", c.m(), c.leased(ctx)) },
	"Uncordon": func(ctx context.Context, c *flapsCase) error { return c.Uncordon(ctx, "shop", c.m(), c.leased(ctx)) },

	"AcquireLease": func(ctx context.Context, c *flapsCase) error { return answers(nil, c.leased(ctx) != "") },
	"RefreshLease": func(ctx context.Context, c *flapsCase) error {
		ttl, nonce := 13, c.leased(ctx)
		again, err := c.RefreshLease(ctx, "shop", c.m(), &ttl, nonce)
		return answers(err, err == nil && again.Data.Nonce == nonce)
	},
	"FindLease": func(ctx context.Context, c *flapsCase) error {
		nonce := c.leased(ctx)
		found, err := c.FindLease(ctx, "shop", c.m())
		return answers(err, err == nil && found.Data.Nonce == nonce)
	},
	"ReleaseLease": func(ctx context.Context, c *flapsCase) error {
		return c.ReleaseLease(ctx, "shop", c.m(), c.leased(ctx))
	},

	"SetMetadata": func(ctx context.Context, c *flapsCase) error { return c.SetMetadata(ctx, "shop", c.m(), "a", "b") },
	"GetMetadata": func(ctx context.Context, c *flapsCase) error {
		if err := c.SetMetadata(ctx, "shop", c.m(), "a", "b"); err != nil {
			return err
		}
		got, err := c.GetMetadata(ctx, "shop", c.m())
		return answers(err, got["a"] == "b")
	},
	"DeleteMetadata": func(ctx context.Context, c *flapsCase) error { return c.DeleteMetadata(ctx, "shop", c.m(), "a") },

	// Volumes.
	"CreateVolume": func(ctx context.Context, c *flapsCase) error {
		v, err := c.CreateVolume(ctx, "shop", fly.CreateVolumeRequest{Name: "more", Region: "gru", SizeGb: new(1)})
		return answers(err, err == nil && v.State == "created")
	},
	"GetVolume": func(ctx context.Context, c *flapsCase) error {
		v, err := c.GetVolume(ctx, "shop", string(c.volume))
		return answers(err, err == nil && v.ID == string(c.volume))
	},
	"GetVolumes": func(ctx context.Context, c *flapsCase) error {
		list, err := c.GetVolumes(ctx, "shop")
		return answers(err, len(list) == 1)
	},
	"GetAllVolumes": func(ctx context.Context, c *flapsCase) error {
		list, err := c.GetAllVolumes(ctx, "shop")
		return answers(err, len(list) == 1)
	},
	"UpdateVolume": func(ctx context.Context, c *flapsCase) error {
		v, err := c.UpdateVolume(ctx, "shop", string(c.volume), fly.UpdateVolumeRequest{SnapshotRetention: new(7)})
		return answers(err, err == nil && v.SnapshotRetention == 7)
	},
	"ExtendVolume": func(ctx context.Context, c *flapsCase) error {
		v, _, err := c.ExtendVolume(ctx, "shop", string(c.volume), 4)
		return answers(err, err == nil && v.SizeGb == 4)
	},
	"DeleteVolume": func(ctx context.Context, c *flapsCase) error {
		v, err := c.DeleteVolume(ctx, "shop", string(c.volume))
		return answers(err, err == nil && v.State == "destroyed")
	},
	"CreateVolumeSnapshot": func(ctx context.Context, c *flapsCase) error {
		return c.CreateVolumeSnapshot(ctx, "shop", string(c.volume))
	},
	"GetVolumeSnapshots": func(ctx context.Context, c *flapsCase) error {
		if err := c.CreateVolumeSnapshot(ctx, "shop", string(c.volume)); err != nil {
			return err
		}
		list, err := c.GetVolumeSnapshots(ctx, "shop", string(c.volume))
		return answers(err, len(list) == 1)
	},

	// Addresses.
	"GetIPAssignments": func(ctx context.Context, c *flapsCase) error {
		list, err := c.GetIPAssignments(ctx, "shop")
		return answers(err, err == nil && len(list.IPs) == 1 && list.IPs[0].IsFlycast() && !list.IPs[0].CreatedAt.IsZero())
	},
	"AssignIP": func(ctx context.Context, c *flapsCase) error {
		list, err := c.GetIPAssignments(ctx, "shop")
		if err != nil {
			return err
		}
		for _, kind := range []string{"v6", "shared_v4", "private_v6", "v4"} {
			ip, err := c.AssignIP(ctx, "shop", flaps.AssignIPRequest{Type: kind})
			if err := answers(err, err == nil && *ip == list.IPs[0]); err != nil {
				return err
			}
		}
		_, err = c.AssignIP(ctx, "shop", flaps.AssignIPRequest{Type: "egress_v4"})
		return refusedBy(err, http.StatusUnprocessableEntity, "its private address")
	},
	"DeleteIPAssignment": func(ctx context.Context, c *flapsCase) error {
		list, err := c.GetIPAssignments(ctx, "shop")
		if err != nil {
			return err
		}
		return errors.Join(refusedBy(c.DeleteIPAssignment(ctx, "shop", list.IPs[0].IP), http.StatusPreconditionFailed, "derived from the app's ID"),
			refusedBy(c.DeleteIPAssignment(ctx, "shop", "1.2.3.4"), http.StatusNotFound, "address not found"))
	},

	"GetRegions": func(ctx context.Context, c *flapsCase) error {
		all, err := c.GetRegions(ctx)
		return answers(err, err == nil && len(all.Regions) == 2 && all.Nearest == "gru" && all.Regions[0].GeoRegion == fly.GeoRegion("south_america"))
	},

	"GetPlacements": func(ctx context.Context, c *flapsCase) error {
		for _, w := range c.s.workers {
			w.room = 3
		}
		two, err := c.GetPlacements(ctx, &flaps.GetPlacementsRequest{Org: "personal", Region: "gru,any", Count: 8, ComputeRequirements: &fly.MachineGuest{CPUKind: "shared", CPUs: 1, MemoryMB: 256}})
		if err := answers(err, reflect.DeepEqual(two, []flaps.RegionPlacement{{Region: "gru", Count: 6, Concurrency: 2}, {Region: "mad", Count: 2, Concurrency: 1}})); err != nil {
			return err
		}
		all, err := c.GetPlacements(ctx, &flaps.GetPlacementsRequest{Org: "personal"})
		return answers(err, reflect.DeepEqual(all, []flaps.RegionPlacement{{Region: "gru", Count: 6, Concurrency: 2}, {Region: "mad", Count: 3, Concurrency: 1}}))
	},

	// Secrets.
	"SetAppSecret": func(ctx context.Context, c *flapsCase) error {
		set, err := c.SetAppSecret(ctx, "shop", "A", "b")
		return answers(err, err == nil && set.Version > 0)
	},
	"ListAppSecrets": func(ctx context.Context, c *flapsCase) error {
		if _, err := c.SetAppSecret(ctx, "shop", "A", "b"); err != nil {
			return err
		}
		list, err := c.ListAppSecrets(ctx, "shop", nil, false)
		return answers(err, len(list) == 1 && list[0].Name == "A" && list[0].Digest != "" && list[0].Value == nil)
	},
	"GetAppSecrets": func(ctx context.Context, c *flapsCase) error {
		if _, err := c.SetAppSecret(ctx, "shop", "A", "b"); err != nil {
			return err
		}
		got, err := c.GetAppSecrets(ctx, "shop", "A", nil, false)
		return answers(err, err == nil && got.Name == "A")
	},
	"DeleteAppSecret": func(ctx context.Context, c *flapsCase) error {
		set, err := c.SetAppSecret(ctx, "shop", "A", "b")
		if err != nil {
			return err
		}
		gone, err := c.DeleteAppSecret(ctx, "shop", "A")
		return answers(err, err == nil && gone.Version > set.Version)
	},
	"UpdateAppSecrets": func(ctx context.Context, c *flapsCase) error {
		done, err := c.UpdateAppSecrets(ctx, "shop", map[string]*string{"A": new("b"), "C": nil})
		return answers(err, err == nil && done.Version > 0 && len(done.Secrets) == 1)
	},

	// Unsupported; see tenant.Unsupported.
	"ListCertificates": func(ctx context.Context, c *flapsCase) error {
		list, err := c.ListCertificates(ctx, "shop", &flaps.ListCertificatesOpts{Limit: 5})
		return answers(err, err == nil && list.Certificates != nil && len(list.Certificates) == 0)
	},
	"CreateACMECertificate": func(ctx context.Context, c *flapsCase) error {
		_, err := c.CreateACMECertificate(ctx, "shop", fly.CreateCertificateRequest{Hostname: "a.example"})
		return refusedBy(err, http.StatusUnprocessableEntity, "proxies manage certificates")
	},
	"CreateCustomCertificate": func(ctx context.Context, c *flapsCase) error {
		_, err := c.CreateCustomCertificate(ctx, "shop", fly.ImportCertificateRequest{Hostname: "a.example"})
		return refusedBy(err, http.StatusUnprocessableEntity, "proxies manage certificates")
	},
	"GetCertificate": func(ctx context.Context, c *flapsCase) error {
		_, err := c.GetCertificate(ctx, "shop", "a.example")
		return refusedBy(err, http.StatusNotFound, "certificate not found")
	},
	"CheckCertificate": func(ctx context.Context, c *flapsCase) error {
		_, err := c.CheckCertificate(ctx, "shop", "a.example")
		return refusedBy(err, http.StatusUnprocessableEntity, "proxies manage certificates")
	},
	"DeleteCertificate": func(ctx context.Context, c *flapsCase) error {
		return refusedBy(c.DeleteCertificate(ctx, "shop", "a.example"), http.StatusNotFound, "certificate not found")
	},
	"DeleteACMECertificate": func(ctx context.Context, c *flapsCase) error {
		return refusedBy(c.DeleteACMECertificate(ctx, "shop", "a.example"), http.StatusNotFound, "certificate not found")
	},
	"DeleteCustomCertificate": func(ctx context.Context, c *flapsCase) error {
		return refusedBy(c.DeleteCustomCertificate(ctx, "shop", "a.example"), http.StatusNotFound, "certificate not found")
	},
	"ListSecretKeys": func(ctx context.Context, c *flapsCase) error {
		list, err := c.ListSecretKeys(ctx, "shop", nil)
		return answers(err, list != nil && len(list) == 0)
	},
	"GetSecretKey": func(ctx context.Context, c *flapsCase) error {
		_, err := c.GetSecretKey(ctx, "shop", "k", nil)
		return refusedBy(err, http.StatusNotFound, "secret key not found")
	},
	"SetSecretKey": func(ctx context.Context, c *flapsCase) error {
		_, err := c.SetSecretKey(ctx, "shop", "k", "hs256", []byte("x"))
		return refusedBy(err, http.StatusUnprocessableEntity, "does not store keys")
	},
	"GenerateSecretKey": func(ctx context.Context, c *flapsCase) error {
		_, err := c.GenerateSecretKey(ctx, "shop", "k", "hs256")
		return refusedBy(err, http.StatusUnprocessableEntity, "does not store keys")
	},
	"DeleteSecretKey": func(ctx context.Context, c *flapsCase) error {
		return refusedBy(c.DeleteSecretKey(ctx, "shop", "k"), http.StatusNotFound, "secret key not found")
	},
	"EncryptSecretKey": func(ctx context.Context, c *flapsCase) error {
		_, err := c.EncryptSecretKey(ctx, "shop", "k", []byte("x"), nil, nil)
		return refusedBy(err, http.StatusUnprocessableEntity, "does not store keys")
	},
	"DecryptSecretKey": func(ctx context.Context, c *flapsCase) error {
		_, err := c.DecryptSecretKey(ctx, "shop", "k", []byte("x"), nil, nil)
		return refusedBy(err, http.StatusUnprocessableEntity, "does not store keys")
	},
	"SignSecretKey": func(ctx context.Context, c *flapsCase) error {
		_, err := c.SignSecretKey(ctx, "shop", "k", []byte("x"), nil)
		return refusedBy(err, http.StatusUnprocessableEntity, "does not store keys")
	},
	"VerifySecretKey": func(ctx context.Context, c *flapsCase) error {
		return refusedBy(c.VerifySecretKey(ctx, "shop", "k", []byte("x"), []byte("y"), nil), http.StatusUnprocessableEntity, "does not store keys")
	},
}

// flapsNotHere contains the methods that this test does not call, with the reasons.
var flapsNotHere = map[string]string{
	"NewRequest": "makes a request and sends none",
}

// TestEveryMethodOfFlaps calls all methods of fly-go's client of the Machines API. Each method
// either works or is listed in flapsNotHere.
func TestEveryMethodOfFlaps(t *testing.T) {
	client := reflect.TypeFor[*flaps.Client]()
	for method := range client.Methods() {
		name := method.Name
		try, reason := flapsMethods[name], flapsNotHere[name]
		if (try == nil) == (reason == "") {
			t.Errorf("method %s: add a check, or a reason why it is not called", name)
		}
		if try == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			seals, _ := sealing(newFakeSecrets())
			s := start(t, seals)
			c := &flapsCase{s: s, machine: s.machine(t, "w1", "web", bourse.StateStarted).ID, Client: flyClient(t, s, "any")}
			v, err := c.CreateVolume(t.Context(), "shop", fly.CreateVolumeRequest{Name: "data", Region: "gru", SizeGb: new(1)})
			if err != nil {
				t.Fatal(err)
			}
			c.volume = bourse.VolumeID(v.ID)
			if err := try(t.Context(), c); err != nil {
				t.Error(err)
			}
		})
	}
	for name := range flapsMethods {
		if _, ok := client.MethodByName(name); !ok {
			t.Errorf("%s is not a method of the client", name)
		}
	}
	for name := range flapsNotHere {
		if _, ok := client.MethodByName(name); !ok {
			t.Errorf("%s is not a method of the client", name)
		}
	}
}
