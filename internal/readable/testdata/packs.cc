// Functions whose names have packs, expansions of them, and unresolved names.
#include <functional>
#include <tuple>
#include <utility>

template <class...> struct list {};
template <class A, class B> struct pair {};
template <int...> struct numbers {};
template <class T> struct is_char { enum { value = sizeof(T) == 1 }; };
template <bool, class T> struct enable {};
template <class T> struct enable<true, T> { typedef T type; };

template <class... A> list<A...> plain(A...) { return {}; }
template <class... A> list<pair<A, int>...> one(A &&...) { return {}; }
template <class... A, class... B> list<pair<A, B>...> two(list<A...>, list<B...>) { return {}; }
template <class... A> list<pair<A const *, A &>...> twice(pair<A, A>...) { return {}; }
template <class... A> auto nested(A...) -> list<pair<A, list<A...>>...> { return {}; }
template <class... A> list<list<A...>, list<A *...>> sides(list<A...>, A...) { return {}; }
template <class... A> auto called(A... a) -> decltype(plain(a...)) { return plain(a...); }
template <class... A> auto counted(A...) -> numbers<sizeof...(A), int(sizeof(A))...> { return {}; }
template <class R, class... A> R pointers(R (*)(pair<A, R> *...), list<A const &...>) { return R(); }
template <class... A> list<void (A...), A *...> functions(list<A...>) { return {}; }
template <class T> typename enable<is_char<T>::value, T>::type unresolved(pair<T, T *>, T t) { return t; }
template <class T, class U>
auto unresolveds(T t, U) -> typename enable<is_char<T>::value && (is_char<pair<T, U>>::value || is_char<T>::value), pair<T, U>>::type { return {}; }
template <class R, class... A> inline constexpr bool can = sizeof...(A) > 0 && sizeof(R) > 0;
template <class T, class... A> auto allowed(T t, A...) -> typename enable<can<T &, A...>, T>::type { return t; }
template <class... A> struct tuple {
	template <class... B> list<pair<A, B>...> member(list<B>...) { return {}; }
	template <class... B> list<A..., B...> both(B...) { return {}; }
};

int f(int, char);
int g(pair<int, int> *, pair<char, int> *);

void all() {
	plain();
	plain(1, 'c', 2.0);
	one();
	one(1, 'c');
	two(list<>{}, list<>{});
	two(list<int, char>{}, list<long, short>{});
	twice(pair<int, int>{}, pair<char, char>{});
	nested(1, 'c');
	sides(list<>{});
	sides(list<int, char>{}, 1, 'c');
	called(1, 'c');
	counted(1, 'c');
	pointers(g, list<int const &, char const &>{});
	functions(list<int, char>{});
	unresolved(pair<char, char *>{}, 'c');
	unresolveds('c', 1);
	allowed(1, 'c');
	allowed(1, 'c', 2L);
	tuple<int, char>{}.member(list<int>{}, list<long>{});
	tuple<int>{}.both(1, 2L);
	tuple<>{}.both();
	std::apply(f, std::make_tuple(1, 'c'));
	std::bind(f, std::placeholders::_1, 'c')(1);
	std::tuple<list<int>, list<char>> t(list<int>{}, list<char>{});
	std::get<0>(t);
}
