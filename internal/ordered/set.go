// Package ordered keeps values once each, in the order in which they came. A file that somebody else
// made may bring very many of them: to look through a list for each would take for ever.
package ordered

// A Set has each value once. The zero value is an empty set.
type Set[T comparable] struct {
	values []T
	has    map[T]struct{}
}

// Add adds a value, and reports whether it was not there.
func (s *Set[T]) Add(v T) bool {
	if s.Has(v) {
		return false
	}
	if s.has == nil {
		s.has = map[T]struct{}{}
	}
	s.has[v] = struct{}{}
	s.values = append(s.values, v)
	return true
}

// Has reports whether a value is there.
func (s *Set[T]) Has(v T) bool {
	if s == nil {
		return false
	}
	_, ok := s.has[v]
	return ok
}

// Values returns the values in the order in which they came. The caller does not change them.
func (s *Set[T]) Values() []T {
	if s == nil {
		return nil
	}
	return s.values
}

// A Multimap has a Set for each key, and the keys in the order in which they came. The zero value is
// empty.
type Multimap[K, V comparable] struct {
	keys []K
	sets map[K]*Set[V]
}

// Add adds a value to those of a key, and reports whether it was not there.
func (m *Multimap[K, V]) Add(k K, v V) bool {
	s := m.sets[k]
	if s == nil {
		if m.sets == nil {
			m.sets = map[K]*Set[V]{}
		}
		s = new(Set[V])
		m.sets[k] = s
		m.keys = append(m.keys, k)
	}
	return s.Add(v)
}

// Has reports whether a key has a value.
func (m *Multimap[K, V]) Has(k K, v V) bool { return m.sets[k].Has(v) }

// Keys returns the keys in the order in which they came.
func (m *Multimap[K, V]) Keys() []K { return m.keys }

// Values returns the values of a key in the order in which they came.
func (m *Multimap[K, V]) Values(k K) []V { return m.sets[k].Values() }
