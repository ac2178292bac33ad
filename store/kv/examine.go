package kv

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store/kv/pages"
)

// examination is what a look at every page and value of the file has found.
type examination struct {
	version  int   // of its schema; -1: not known
	sealed   bool  // its values have checksums
	keys     int64 // how many of them are whole
	damage   []Damage
	recorded map[string]tally // what the file has of its buckets' tallies
	counted  map[string]tally // what is there and whole
	pages    *pages.File
}

// maxExamined bounds how many damaged values are described.
const maxExamined = 1000

// examine reads a file of which nothing is trusted, without bbolt. It calls
// visit, unless it is nil, with every value that is whole.
func examine(from io.ReaderAt, size int64, visit func(bucket string, key, value []byte)) *examination {
	e := &examination{version: -1, recorded: map[string]tally{}, counted: map[string]tally{}}
	e.sealed = hasTallies(from, size)
	e.pages = pages.Read(from, size, func(i pages.Item) { e.item(i, visit) })
	for _, d := range e.pages.Damage {
		e.damage = append(e.damage, Damage{File: FileName, Offset: d.Offset, What: d.String()})
	}
	if n := e.pages.More; n > 0 {
		e.damage = append(e.damage, Damage{File: FileName, Offset: -1, What: fmt.Sprintf("%d more pages", n)})
	}
	if size > 0 && len(e.pages.Buckets) > 0 {
		e.compare()
	}
	return e
}

// hasTallies reports whether a file records the tallies of its buckets.
func hasTallies(from io.ReaderAt, size int64) bool {
	return pages.Read(from, size, nil).Buckets[bucketTallies]
}

// item looks at one value.
func (e *examination) item(i pages.Item, visit func(bucket string, key, value []byte)) {
	value, sum, ok := i.Value, uint32(0), true
	if e.sealed {
		value, sum, ok = unseal(i.Bucket, i.Key, i.Value)
	}
	switch {
	case !ok:
		if len(e.damage) < maxExamined {
			e.damage = append(e.damage, Damage{
				File: FileName, Offset: i.Offset,
				What: fmt.Sprintf("bucket %s, key %s: its checksum does not match", i.Bucket, bourse.Quoted(string(i.Key))),
			})
		}
		return
	case i.Bucket == bucketTallies:
		e.recorded[string(i.Key)], _ = tallyOf(value)
		return
	case i.Bucket == Meta && string(i.Key) == string(keyVersion) && len(value) == 4:
		e.version = int(binary.BigEndian.Uint32(value))
	}
	e.keys++
	t := e.counted[i.Bucket]
	t.add(sum)
	e.counted[i.Bucket] = t
	if visit != nil {
		visit(i.Bucket, i.Key, value)
	}
}

// compare adds what is wrong with the file as a whole.
func (e *examination) compare() {
	wrong := func(format string, args ...any) {
		e.damage = append(e.damage, Damage{File: FileName, Offset: -1, What: fmt.Sprintf(format, args...)})
	}
	if !e.sealed {
		wrong("bucket %s is missing", bucketTallies)
		return
	}
	for _, bucket := range slices.Sorted(maps.Keys(e.pages.Buckets)) {
		if _, ok := e.recorded[bucket]; !ok && bucket != bucketTallies {
			wrong("of bucket %s it is not known what it held", bucket)
		}
	}
	for _, bucket := range slices.Sorted(maps.Keys(e.recorded)) {
		recorded, counted := e.recorded[bucket], e.counted[bucket]
		switch {
		case recorded.keys != counted.keys:
			wrong("bucket %s has %d whole keys, and had %d", bucket, counted.keys, recorded.keys)
		case recorded != counted:
			wrong("bucket %s has older values than it had", bucket)
		case !e.pages.Buckets[bucket]:
			wrong("bucket %s is missing", bucket)
		}
	}
}
