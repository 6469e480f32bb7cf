// What this browser remembers: the token until the tab is closed, the operator's name for good.

const read = (store, key) => {
  try {
    return store().getItem(`surgetank.${key}`) ?? "";
  } catch (refused) {
    console.info("this browser keeps nothing:", refused.message);
    return "";
  }
};
const write = (store, key, value) => {
  try {
    store().setItem(`surgetank.${key}`, value);
  } catch (refused) {
    console.info("this browser keeps nothing:", refused.message);
  }
};
const tab = () => window.sessionStorage;
const browser = () => window.localStorage;

let token = read(tab, "token");

export const session = {
  get token() { return token; },
  set token(value) { token = value; write(tab, "token", value); },
  get who() { return read(browser, "who"); },
  set who(value) { write(browser, "who", value); },
  get theme() { return read(browser, "theme"); },
  set theme(value) { write(browser, "theme", value); },
};
