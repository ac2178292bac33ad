package machines

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/workload"
)

// Policy contains the limits that the operator has configured for programs.
type Policy struct {
	SharedQuota bool // cap each shared vCPU at a quota, with bursts; otherwise, shared vCPUs compete for cores
	PIDs        int  // maximum number of processes of a machine with an image; 0 or less for no limit
}

// TaskOf returns the id of the task for a machine's latest boot.
func TaskOf(m *bourse.Machine) driver.TaskID {
	return driver.TaskID{Machine: m.ID, Boot: m.Boot.Number}
}

// CheckSecrets returns CodeInvalid if a config uses a secret that does not exist, or one whose
// value does not have the required format.
func CheckSecrets(c *bourse.Config, secrets map[string]string) error {
	for _, f := range c.Files {
		if f.SecretName == "" {
			continue
		}
		value, ok := secrets[f.SecretName]
		if !ok {
			return bourse.Errorf(bourse.CodeInvalid, "config.files: the app has no secret %s", bourse.Quoted(f.SecretName))
		}
		if _, err := base64.StdEncoding.DecodeString(value); err != nil {
			return bourse.Errorf(bourse.CodeInvalid, "config.files: the value of secret %s is not base64", bourse.Quoted(f.SecretName))
		}
	}
	runs := workload.ProgramOf(c)
	_, err := runs.SecretVars(secrets)
	return err
}

// Of returns the task that the driver must run for m's latest boot.
func (p Policy) Of(m *bourse.Machine, f Attached, secrets map[string]string) driver.Task {
	runs := workload.ProgramOf(&m.Config)
	given, _ := runs.SecretVars(secrets) // cannot fail after CheckSecrets
	init := &runs.Init
	t := driver.Task{
		ID: TaskOf(m), Image: m.Config.Image, Env: environment(m, &runs, given), Dir: init.WorkingDir, User: init.User,
		Limits: p.Limits(m), Network: f.Network, Mounts: f.Mounts, Devices: m.Devices,
	}
	if m.Config.ImageKind() != bourse.RegistryImage {
		t.Command, t.Name = init.Command(), m.Name
		return t
	}
	t.Image = imageName(m)
	t.Command, t.Entrypoint, t.Args, t.TTY = init.Exec, init.Entrypoint, init.Cmd, init.TTY
	t.Root = driver.Root{Runtime: m.Config.Runtime, Scratch: f.Scratch, Files: files(&m.Config, secrets)}
	t.Env, t.Secrets = environment(m, &runs, nil), variables(given)
	t.Root.ReadOnly = m.Config.Rootfs != nil && m.Config.Rootfs.ReadOnly
	return t
}

// imageName returns the name of m's image on the host, with its digest instead of its
// tag.
func imageName(m *bourse.Machine) string {
	if m.Image == nil {
		return m.Config.Image
	}
	ref := *m.Image
	ref.Tag = ""
	return ref.String()
}

const defaultFileMode = 0o644

func files(c *bourse.Config, secrets map[string]string) []driver.File {
	out := make([]driver.File, len(c.Files))
	for i, f := range c.Files {
		out[i] = driver.File{Path: f.GuestPath, Data: f.RawValue, Mode: cmp.Or(f.Mode, defaultFileMode)}
		if f.SecretName != "" {
			out[i].Secret = true
			out[i].Data, _ = base64.StdEncoding.DecodeString(secrets[f.SecretName]) // cannot fail after CheckSecrets
		}
	}
	return out
}

// A shared vCPU may run for sharedQuota in each sharedPeriod (both in milliseconds), and may save
// up unused time for bursts, as on Fly.io.
const (
	sharedQuota  = 5
	sharedPeriod = 80
)

// Limits returns m's limits.
func (p Policy) Limits(m *bourse.Machine) driver.Limits {
	guest := m.Config.Guest
	whole := bourse.MilliCPU(guest.CPUs * 1000)
	l := driver.Limits{Memory: guest.MemoryMB, CPUWeight: whole, CPUQuota: whole}
	if m.Config.ImageKind() == bourse.PollerImage { // on a poller's host, other limits cannot be set
		return PollerLimits(&m.Config)
	}
	if guest.CPUKind == bourse.CPUShared {
		l.CPUWeight = bourse.MilliCPU(m.Takes.Of(bourse.ResourceCPU))
		if p.SharedQuota {
			l.CPUQuota = max(1, whole*sharedQuota/sharedPeriod)
			l.CPUPeriod = sharedPeriod * time.Millisecond
			l.CPUBurst = time.Duration(guest.CPUs) * sharedQuota * time.Millisecond
		}
	}
	if m.Config.ImageKind() == bourse.RegistryImage && p.PIDs > 0 {
		l.PIDs = p.PIDs
	}
	return l
}

// MetadataGroup is the metadata key whose value is passed to the program in an
// environment variable.
const MetadataGroup = "fly_process_group"

// environment returns a program's environment. It contains facts about the machine, the config's
// variables, and secrets. If several of these define the same variable, the last of them in this
// order wins. They all override the image's environment. Only host programs inherit the host's
// variables.
func environment(m *bourse.Machine, runs *workload.Program, secrets map[string]string) []string {
	env := map[string]string{
		"FLY_APP_NAME":        string(m.App),
		"FLY_MACHINE_ID":      string(m.ID),
		"FLY_ALLOC_ID":        string(m.ID),
		"FLY_MACHINE_VERSION": string(m.Instance),
		"FLY_REGION":          string(m.Region),
		"FLY_IMAGE_REF":       m.Config.Image,
		"FLY_VM_MEMORY_MB":    strconv.FormatInt(int64(m.Config.Guest.MemoryMB), 10),
		"FLY_PROCESS_GROUP":   m.Config.Metadata[MetadataGroup],
	}
	if m.Config.ImageKind() == bourse.HostImage {
		env["PATH"], env["HOME"] = os.Getenv("PATH"), os.Getenv("HOME")
	} else if m.Image != nil {
		env["FLY_IMAGE_REF"] = m.Image.String()
	}
	if m.PrivateIP.IsValid() {
		env["FLY_PRIVATE_IP"] = m.PrivateIP.String()
	}
	if m.Boot.Port != 0 {
		env[admit.EnvPort] = strconv.Itoa(m.Boot.Port)
	} else if m.Config.Task != nil {
		env[admit.EnvPort] = strconv.Itoa(m.TaskPort())
	}
	facts := map[string]string{
		"id": string(m.ID), "version": string(m.Instance), "app_name": string(m.App), "region": string(m.Region),
		"image": env["FLY_IMAGE_REF"], "private_ip": env["FLY_PRIVATE_IP"],
	}
	maps.Copy(env, runs.Env)
	for name, fact := range runs.From {
		env[name] = facts[fact]
	}
	maps.Copy(env, secrets)
	return variables(env)
}

func variables(env map[string]string) []string {
	var out []string
	for k, v := range env {
		out = append(out, fmt.Sprintf("%s=%s", k, v))
	}
	slices.Sort(out)
	return out
}

// PollerLimits returns the resources that a poller's host must have free to claim a
// machine with this config.
func PollerLimits(c *bourse.Config) driver.Limits {
	l := driver.Limits{CPUQuota: bourse.MilliCPU(c.Guest.CPUs * 1000), Memory: c.Guest.MemoryMB}
	if c.Rootfs != nil {
		l.Disk = bourse.MiB(c.Rootfs.SizeGB) << 10
	}
	return l
}
