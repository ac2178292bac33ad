package codectest

import (
	"net/netip"
	"reflect"
	"slices"
	"time"
)

// Fill sets every exported field of the value that pointer points to, including nested fields, to a
// nonzero value, so that a test notices fields that are not encoded. Recursive types are nested at
// most twice.
func Fill(pointer any) { fill(reflect.ValueOf(pointer).Elem(), nil) }

func fill(v reflect.Value, path []reflect.Type) {
	if i := slices.Index(path, v.Type()); i >= 0 && slices.Contains(path[i+1:], v.Type()) {
		return
	}
	path = append(path, v.Type())
	switch at := v.Addr().Interface().(type) {
	case *time.Time:
		*at = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
		return
	case *netip.Addr:
		*at = netip.MustParseAddr("fd00::1")
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(7.5)
	case reflect.String:
		v.SetString("x")
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), path)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), path)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, path)
		fill(value, path)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), path)
			}
		}
	case reflect.Func: // functions are not encoded
	default:
		panic("fields of kind " + v.Kind().String() + " cannot be encoded")
	}
}
