package sim

import (
	"compress/gzip"
	"embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse"
)

//go:embed testdata/openb/*.csv.gz
var openb embed.FS

// WholeGPU is the Share of a shape that takes whole GPUs.
const WholeGPU = 1000

// Models is a set of GPU models. Each bit represents one of a trace's models.
type Models uint32

// Shape is the size of a machine in a trace.
type Shape struct {
	CPU    bourse.MilliCPU
	Memory bourse.MiB
	GPUs   int
	Share  int    // thousandths of each GPU that the machine takes; less than WholeGPU only if GPUs is 1
	Models Models // acceptable models; 0: all
}

// GPU returns the machine's GPU capacity, in thousandths of a GPU.
func (s *Shape) GPU() int { return s.GPUs * s.Share }

// shared reports whether the machine shares its GPU with others.
func (s *Shape) shared() bool { return s.GPUs == 1 && s.Share < WholeGPU }

// Host is the hardware of a worker in a trace.
type Host struct {
	CPU    bourse.MilliCPU
	Memory bourse.MiB
	GPUs   int
	Model  Models // at most one model
	Region int
}

// Trace is a cluster's hardware and workload.
type Trace struct {
	Name   string
	Hosts  []Host
	Shapes []Shape // all different
	Orders []int   // index of each order's shape, in the order of the trace
}

// GPU returns the total GPU capacity of all hosts, in thousandths of a GPU.
func (t *Trace) GPU() int {
	sum := 0
	for i := range t.Hosts {
		sum += t.Hosts[i].GPUs * WholeGPU
	}
	return sum
}

// Workloads returns the names of the workloads of the openb trace.
func Workloads() []string { return []string{"default", "gpuspec33", "gpushare100", "multigpu50"} }

// Openb returns the openb trace with one of its workloads.
func Openb(workload string) (*Trace, error) {
	models := modelSet{}
	t := &Trace{Name: workload}
	err := readCSV("nodes", func(row []string) error {
		n, err := atois(row[:3])
		t.Hosts = append(t.Hosts, Host{CPU: bourse.MilliCPU(n[0]), Memory: bourse.MiB(n[1]), GPUs: n[2], Model: models.set(row[3])})
		return err
	})
	if err != nil {
		return nil, err
	}
	index := map[Shape]int{}
	err = readCSV(workload, func(row []string) error {
		n, err := atois(row[:4])
		s := Shape{bourse.MilliCPU(n[0]), bourse.MiB(n[1]), n[2], n[3], models.set(row[4])}
		i, known := index[s]
		if !known {
			i = len(t.Shapes)
			index[s] = i
			t.Shapes = append(t.Shapes, s)
		}
		t.Orders = append(t.Orders, i)
		return err
	})
	return t, err
}

// Figure contains the figures of an inflation experiment at one load, as percentages of the
// cluster's GPUs.
type Figure struct {
	Allocated  float64
	Fragmented float64 // free, but useless for an order; averaged over the typical orders
}

// Published returns a workload's published figures at a load of 100 %, by policy and seed.
func Published(workload string) (map[string]map[int64]Figure, error) {
	out := map[string]map[int64]Figure{}
	err := readCSV("published", func(row []string) error {
		if row[0] != workload {
			return nil
		}
		seed, err := strconv.ParseInt(row[2], 10, 64)
		if err != nil {
			return err
		}
		var f Figure
		if _, err := fmt.Sscan(row[3]+" "+row[4], &f.Allocated, &f.Fragmented); err != nil {
			return err
		}
		if out[row[1]] == nil {
			out[row[1]] = map[int64]Figure{}
		}
		out[row[1]][seed] = f
		return nil
	})
	return out, err
}

// modelSet maps the name of each GPU model to the model's number. Models are numbered in order of
// first use.
type modelSet map[string]int

func (m modelSet) set(names string) Models {
	var out Models
	for name := range strings.SplitSeq(names, "|") {
		if name == "" {
			continue
		}
		i, known := m[name]
		if !known {
			i = len(m)
			m[name] = i
		}
		out |= 1 << i
	}
	return out
}

func readCSV(name string, row func([]string) error) error {
	f, err := openb.Open("testdata/openb/" + name + ".csv.gz")
	if err != nil {
		return bourse.Errorf(bourse.CodeNotFound, "unknown workload %s: use one of %v", bourse.Quoted(name), Workloads())
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	r := csv.NewReader(z)
	r.ReuseRecord = true
	for header := true; ; header = false {
		fields, err := r.Read()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case header:
			continue
		}
		if err := row(fields); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
}

func atois(fields []string) ([]int, error) {
	out := make([]int, len(fields))
	for i, s := range fields {
		n, err := strconv.Atoi(s)
		if err != nil {
			return out, err
		}
		out[i] = n
	}
	return out, nil
}
